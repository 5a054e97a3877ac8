// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/rackpulse/rackpulse/xid"
)

// Config is the part "gpu" of an agent's configuration. The zero value means the
// defaults.
type Config struct {
	// Source is "auto", "dcgm", "nvml" or "sim"; empty: auto.
	Source string `yaml:"source"`
	// Interval is the sampling interval, 100 ms or more; 0: 1 s.
	Interval time.Duration `yaml:"interval"`
	// SlowInterval is the sampling interval of the fields that hardly change, see
	// slowFields: Interval or more, at most 5 min; 0: 10 s, or Interval if longer.
	SlowInterval time.Duration `yaml:"slow_interval"`
	// ReadTimeout bounds one pass over all GPUs, after which the child process is
	// replaced; 0: 10 s, as DCGM needs 5 s to notice a dead port.
	ReadTimeout time.Duration `yaml:"read_timeout"`
	// OpenTimeout bounds the opening of a source; 0: 60 s, as DCGM needs up to
	// 28 s on nodes with many MIG instances.
	OpenTimeout time.Duration `yaml:"open_timeout"`
	// CountersFile is a list of counters in dcgm-exporter's format; empty: the
	// built-in one.
	CountersFile string `yaml:"counters_file"`
	// HostnameLabel names the label with the host's name: "Hostname", "hostname",
	// "both" or "none"; empty: Hostname.
	HostnameLabel string `yaml:"hostname_label"`
	// EmitDCGMNames says whether the DCGM_FI_ and DCGM_EXP_ series are on the page; not
	// told: they are. Beside a dcgm-exporter they would be there twice.
	EmitDCGMNames *bool `yaml:"emit_dcgm_names"`
	// CountWindow is the time that DCGM_EXP_XID_ERRORS_COUNT and
	// DCGM_EXP_CLOCK_EVENTS_COUNT count, at most a day; 0: 5 min.
	CountWindow time.Duration `yaml:"count_window"`
	// Devices says which devices are read, in dcgm-exporter's syntax: "f" (GPU instances
	// where MIG is on, else GPUs), "g" (whole GPUs), "i" (GPU instances), the last two
	// with ":" and ids; or ids alone. An id is a GPU's number, a range of those, a UUID,
	// a PCI address, or GPU.INSTANCE; behind "i:" a number is DCGM's of an instance.
	// Empty: f.
	Devices string `yaml:"devices"`
	// Exclude are ids of GPUs and instances that are not read.
	Exclude []string `yaml:"exclude"`
	// KernelLog is where driver errors are read besides: "auto", "kmsg", "journal",
	// "none" or the absolute path of a log file; empty: auto, which is kmsg, else
	// the journal.
	KernelLog string `yaml:"kernel_log"`
	// XIDOverridesFile changes the catalogue of XIDs; empty: nothing is changed.
	XIDOverridesFile string `yaml:"xid_overrides_file"`
	// DCGM belongs to the source dcgm.
	DCGM DCGMConfig `yaml:"dcgm"`
	// Processes says what is shown of single processes.
	Processes ProcessesConfig `yaml:"processes"`
	// Owners says where the owners of the GPUs come from.
	Owners OwnersConfig `yaml:"owners"`

	callBudget time.Duration // for tests; 0: the constant
}

// DCGMConfig says where DCGM runs.
type DCGMConfig struct {
	// Address is the nv-hostengine to connect to, "tcp://host:port" or
	// "unix:///path"; empty: DCGM runs inside the child process.
	Address string `yaml:"address"`
	// HealthInterval is how often DCGM checks the health of each GPU while the
	// counters file has DCGM_EXP_GPU_HEALTH_STATUS, 1 s to 1 h; 0: 60 s.
	HealthInterval time.Duration `yaml:"health_interval"`
}

// minInterval keeps a slip of the unit from loading the node: dcgm-exporter at
// 3 ms takes 131 % of a core.
const minInterval = 100 * time.Millisecond

const (
	defaultSlowInterval = 10 * time.Second
	// maxSlowInterval bounds how long slow values outlive a source that died: three
	// of these intervals.
	maxSlowInterval = 5 * time.Minute
	maxCountWindow  = 24 * time.Hour
	// callBudget is how long a call into DCGM beside the passes may take before the
	// page says that it is overdue.
	callBudget = 10 * time.Second
)

// withDefaults returns c with its defaults filled in.
func (c Config) withDefaults() Config {
	if c.Source == "" {
		c.Source = "auto"
	}
	if c.Interval == 0 {
		c.Interval = time.Second
	}
	if c.SlowInterval == 0 {
		c.SlowInterval = max(defaultSlowInterval, c.Interval)
	}
	if c.ReadTimeout == 0 {
		c.ReadTimeout = 10 * time.Second
	}
	if c.OpenTimeout == 0 {
		c.OpenTimeout = time.Minute
	}
	if c.CountWindow == 0 {
		c.CountWindow = 5 * time.Minute
	}
	if c.DCGM.HealthInterval == 0 {
		c.DCGM.HealthInterval = time.Minute
	}
	if c.KernelLog == "" {
		c.KernelLog = "auto"
	}
	if c.HostnameLabel == "" {
		c.HostnameLabel = "Hostname"
	}
	c.Processes = c.Processes.withDefaults()
	c.Owners = c.Owners.withDefaults()
	return c
}

// settings are a validated configuration with what was read for it.
type settings struct {
	cfg      Config
	counters *counters
	list     []registration
	source   SourceConfig
	// selection is made of cfg.Devices and cfg.Exclude.
	selection *selection
	// catalogue is that of XIDs, with the site's changes.
	catalogue *xid.Catalogue
}

// newSettings validates a configuration as a whole. Errors name the key.
func newSettings(cfg Config, simulate SimFunc) (*settings, error) {
	cfg = cfg.withDefaults()
	if err := cfg.checkTimes(); err != nil {
		return nil, err
	}
	if _, ok := hostLabels[cfg.HostnameLabel]; !ok {
		return nil, fmt.Errorf("gpu.hostname_label: %q is none of Hostname, hostname, both, none", cfg.HostnameLabel)
	}
	if a := cfg.DCGM.Address; a != "" && !strings.HasPrefix(a, "tcp://") && !strings.HasPrefix(a, "unix://") {
		return nil, fmt.Errorf("gpu.dcgm.address: %q is not tcp://host:port or unix:///path", a)
	}
	if err := cfg.Processes.check(); err != nil {
		return nil, err
	}
	if err := cfg.Owners.check(); err != nil {
		return nil, err
	}
	sel, err := parseSelection(cfg.Devices, cfg.Exclude)
	if err != nil {
		return nil, err
	}
	list, err := candidates(cfg.Source, simulate != nil)
	if err != nil {
		return nil, fmt.Errorf("gpu.source: %w", err)
	}
	c, err := loadCounters(cfg.CountersFile)
	if err != nil {
		return nil, fmt.Errorf("gpu.counters_file: %w", err)
	}
	set := &settings{cfg: cfg, list: list, selection: sel, source: SourceConfig{
		Interval: cfg.Interval, SlowInterval: cfg.SlowInterval, DCGMAddress: cfg.DCGM.Address,
		Devices: cfg.Devices, Exclude: cfg.Exclude,
		CallBudget: cmp.Or(cfg.callBudget, callBudget), ProcessInterval: processInterval, Sim: simulate,
	}}
	set.take(c)
	if err := set.loadLog(simulate != nil); err != nil {
		return nil, err
	}
	return set, nil
}

// take takes over what a counters file asks for.
func (s *settings) take(c *counters) {
	c = s.cfg.shown(c)
	s.counters = c
	s.source.Fields, s.source.Labels = c.fields(), c.labelFields()
	s.source.P2P, s.source.HealthInterval = c.has(expP2P), 0
	if c.has(expHealth) {
		s.source.HealthInterval = s.cfg.DCGM.HealthInterval
	}
}

// shown returns the counters that are to be on the page.
func (c *Config) shown(list *counters) *counters {
	if c.EmitDCGMNames == nil || *c.EmitDCGMNames {
		return list
	}
	return &counters{unknown: list.unknown, sum: list.sum}
}

// checkTimes checks intervals and deadlines, which have their defaults already.
func (c *Config) checkTimes() error {
	switch {
	case c.Interval < minInterval:
		return fmt.Errorf("gpu.interval: %v is below %v", c.Interval, minInterval)
	case c.SlowInterval < c.Interval:
		return fmt.Errorf("gpu.slow_interval: %v is below gpu.interval, %v", c.SlowInterval, c.Interval)
	case c.SlowInterval > max(maxSlowInterval, c.Interval):
		return fmt.Errorf("gpu.slow_interval: %v is above %v", c.SlowInterval, max(maxSlowInterval, c.Interval))
	case c.ReadTimeout < minInterval:
		return fmt.Errorf("gpu.read_timeout: %v is below %v", c.ReadTimeout, minInterval)
	case c.OpenTimeout < minInterval:
		return fmt.Errorf("gpu.open_timeout: %v is below %v", c.OpenTimeout, minInterval)
	case c.CountWindow < time.Second || c.CountWindow > maxCountWindow:
		return fmt.Errorf("gpu.count_window: %v is not 1s to %v", c.CountWindow, maxCountWindow)
	case c.DCGM.HealthInterval < time.Second || c.DCGM.HealthInterval > time.Hour:
		return fmt.Errorf("gpu.dcgm.health_interval: %v is not 1s to 1h", c.DCGM.HealthInterval)
	}
	return nil
}
