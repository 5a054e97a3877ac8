// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/command/dcmi"
	"github.com/bougou/go-ipmi/pkg/types"
)

func init() {
	Register("ipmi", "inlet temperature and power of servers by IPMI and DCMI", newIPMI)
}

const (
	ipmiPort = 623
	// One command waits a sixth of the deadline but not longer than this; it is
	// sent once more. A login that tries a second cipher suite so has time for it.
	maxIPMIExchange = 5 * time.Second
	ipmiShare       = 6
	ipmiRetries     = 1
)

// ipmiConfig is the block "ipmi" of an entry.
type ipmiConfig struct {
	loginConfig `yaml:",inline"`
	// Node is the server's node name; without it the power is left out.
	Node string `yaml:"node"`
	// Sensor is the name of the inlet's sensor; empty: the one that says to be at
	// the air inlet.
	Sensor string `yaml:"sensor"`
	// CipherSuite is the one to use, 3 or 17; by default the ones that the
	// controller may know are tried one after the other.
	CipherSuite uint8 `yaml:"cipher_suite"`
}

func newIPMI(fc FactoryConfig) (Plan, error) {
	var c ipmiConfig
	if err := fc.Decode(&c); err != nil {
		return Plan{}, err
	}
	remote := fc.Address != ""
	host, port, err := ipmiAddress(fc.Address)
	if err == nil {
		err = c.checkLogin(fc, remote)
	}
	if err != nil {
		return Plan{}, fmt.Errorf("ipmi: %w", err)
	}
	open := func(ctx context.Context) (Driver, error) {
		d := &ipmiDriver{config: c}
		if err := d.connect(ctx, host, port, min(maxIPMIExchange, fc.Deadline/ipmiShare)); err != nil {
			return nil, fmt.Errorf("ipmi: %w", err)
		}
		if err := d.discover(ctx); err != nil {
			d.hangUp()
			return nil, fmt.Errorf("ipmi: %w", err)
		}
		return d, nil
	}
	plan := Plan{Open: open}
	if !remote {
		plan.Exclusive = "/dev/ipmi0"
	}
	return plan, nil
}

// ipmiAddress splits host or host:port.
func ipmiAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return address, ipmiPort, nil
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 || host == "" {
		return "", 0, fmt.Errorf("address %q is no host or host:port", address)
	}
	return host, int(n), nil
}

func (c *ipmiConfig) checkLogin(fc FactoryConfig, remote bool) error {
	switch {
	case c.CipherSuite != 0 && c.CipherSuite != 3 && c.CipherSuite != 17:
		return fmt.Errorf("cipher_suite %d is neither 3 nor 17", c.CipherSuite)
	case remote && c.PasswordFile == "" && c.User == "" && c.UserFile == "":
		return errors.New("user and password_file are missing")
	case !remote && c.PasswordFile != "":
		return errors.New("address is missing; the local controller needs no login")
	}
	return c.check(fc.Resolve)
}

// ipmiDriver asks one management controller.
type ipmiDriver struct {
	config ipmiConfig
	client *client.Client
	inlet  *types.SDRFull // nil: DCMI is asked for the temperature
}

func (d *ipmiDriver) connect(ctx context.Context, host string, port int, timeout time.Duration) error {
	var err error
	if host == "" {
		d.client, err = client.NewOpenClient()
	} else {
		user, password, e := d.config.read()
		if e != nil {
			return e
		}
		if d.client, err = client.NewClient(host, port, user, password.Reveal()); err == nil {
			d.client.WithMaxPrivilegeLevel(types.PrivilegeLevelUser).WithRetry(ipmiRetries)
			if d.config.CipherSuite != 0 {
				d.client.WithCipherSuiteID(types.CipherSuiteID(d.config.CipherSuite))
			}
		}
	}
	if err != nil {
		return err
	}
	return d.client.WithTimeout(timeout).Connect(ctx)
}

// Entities at which a temperature sensor measures the air that comes in: IPMI
// 2.0 table 43-13, "air inlet" and DCMI's "air inlet".
const (
	entityAirInlet     = 0x37
	entityDCMIAirInlet = 0x40
)

// discover finds the inlet's sensor among the sensor data records. A controller
// without records may still answer DCMI.
func (d *ipmiDriver) discover(ctx context.Context) error {
	records, err := d.client.GetSDRs(ctx, types.SDRRecordTypeFullSensor)
	if err != nil && !unsupported(err) {
		return fmt.Errorf("sensor data records: %w", ipmiError(err))
	}
	var named *types.SDRFull
	for _, r := range records {
		if r.Full == nil || r.Full.SensorType != types.SensorTypeTemperature {
			continue
		}
		name := strings.TrimSpace(strings.TrimRight(string(r.Full.IDStringBytes), "\x00"))
		entity := uint8(r.Full.SensorEntityID)
		switch {
		case d.config.Sensor != "":
			if name == d.config.Sensor {
				d.inlet = r.Full
				return nil
			}
		case entity == entityAirInlet || entity == entityDCMIAirInlet:
			d.inlet = r.Full
			return nil
		case named == nil && inletName(name):
			named = r.Full
		}
	}
	if d.config.Sensor != "" {
		return fmt.Errorf("no temperature sensor is named %q", d.config.Sensor)
	}
	d.inlet = named
	return nil
}

// Read asks for the temperature and, for a node, for the power. What the
// controller does not know is absent, with the reason in the error.
func (d *ipmiDriver) Read(ctx context.Context) ([]Reading, error) {
	var out []Reading
	var absent []error
	parts := []func(context.Context) ([]Reading, error){d.temperature}
	if d.config.Node != "" {
		parts = append(parts, d.power)
	}
	for _, part := range parts {
		list, err := part(ctx)
		out = append(out, list...)
		switch {
		case err == nil:
		case unsupported(err):
			absent = append(absent, fmt.Errorf("ipmi: %w", ipmiError(err)))
		default:
			// The session is lost with the answer.
			return out, fmt.Errorf("%w: ipmi: %w", ErrGone, ipmiError(err))
		}
	}
	return out, errors.Join(absent...)
}

func (d *ipmiDriver) temperature(ctx context.Context) ([]Reading, error) {
	if d.inlet == nil {
		return d.dcmiTemperature(ctx)
	}
	owner := (&client.CommandContext{}).WithResponderAddr(uint8(d.inlet.GeneratorID.OwnerID())).WithResponderLUN(uint8(d.inlet.GeneratorID.LUN()))
	r, err := d.client.GetSensorReading(client.WithCommandContext(ctx, owner), uint8(d.inlet.SensorNumber))
	if err != nil {
		return nil, fmt.Errorf("inlet sensor: %w", err)
	}
	if r.SensorScanningDisabled || r.ReadingUnavailable {
		return nil, nil
	}
	value := d.inlet.ConvertReading(r.Reading)
	if unit := d.inlet.SensorUnit.BaseUnit; unit == types.SensorUnitType_DegreesF {
		value = units["fahrenheit"].convert(value)
	}
	return []Reading{{Quantity: "inlet_temperature", Value: value}}, nil
}

func (d *ipmiDriver) dcmiTemperature(ctx context.Context) ([]Reading, error) {
	r, err := d.client.GetDCMITemperatureReadings(ctx, &dcmi.GetDCMITemperatureReadingsRequest{
		SensorType: types.SensorTypeTemperature, EntityID: entityDCMIAirInlet,
	})
	if err != nil {
		return nil, fmt.Errorf("no inlet sensor, and DCMI temperature: %w", err)
	}
	if len(r.TemperatureReadings) == 0 {
		return nil, nil
	}
	return []Reading{{Quantity: "inlet_temperature", Value: float64(r.TemperatureReadings[0].TemperatureReading)}}, nil
}

// power is the controller's own average over about a second; it differs by some
// watts from the power supplies' sensors. A server that answers draws power, so 0
// is no measurement.
func (d *ipmiDriver) power(ctx context.Context) ([]Reading, error) {
	r, err := d.client.GetDCMIPowerReading(ctx)
	if err != nil {
		return nil, fmt.Errorf("DCMI power: %w", err)
	}
	if !r.PowerMeasurementActive || r.CurrentPower == 0 {
		return nil, nil
	}
	return []Reading{{Quantity: "node_power", Part: d.config.Node, Value: float64(r.CurrentPower)}}, nil
}

// unsupported says that the controller answered, but not with a value.
func unsupported(err error) bool {
	var r *types.ResponseError
	return errors.As(err, &r)
}

// ipmiError words a completion code, the same for equal failures.
func ipmiError(err error) error {
	var r *types.ResponseError
	if !errors.As(err, &r) {
		return err
	}
	what, _, _ := strings.Cut(err.Error(), ": ")
	if name, rest, ok := strings.Cut(err.Error(), "DCMI temperature"); ok && rest != "" {
		what = name + "DCMI temperature"
	}
	return fmt.Errorf("%s: completion code %#02x", what, uint8(r.CompletionCode()))
}

// hangUp tells the controller that the session ends; it would end it by itself
// after a minute. The library waits for an answer for as long as for a command,
// so that a dead controller is not waited for here.
func (d *ipmiDriver) hangUp() {
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer cancel()
		_ = d.client.Close(ctx)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// Close ends the session.
func (d *ipmiDriver) Close() error {
	d.hangUp()
	return nil
}
