// SPDX-License-Identifier: Apache-2.0

package site

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Facts are what an agent reports of its node at registration. A text is empty where
// the agent does not know (yet).
type Facts struct {
	// Driver is the GPU driver's version, CUDA the newest CUDA that it serves
	// (12.4), Toolkit that of the NVIDIA container toolkit, Kernel the release of
	// the kernel.
	Driver  string `yaml:"driver,omitempty" json:"driver,omitempty"`
	CUDA    string `yaml:"cuda,omitempty" json:"cuda,omitempty"`
	Toolkit string `yaml:"toolkit,omitempty" json:"toolkit,omitempty"`
	Kernel  string `yaml:"kernel,omitempty" json:"kernel,omitempty"`
	// VBIOS is the version of all GPUs; several are joined by ", ".
	VBIOS string `yaml:"vbios,omitempty" json:"vbios,omitempty"`
	// MIGMode, ECCMode and Persistence are those of all GPUs: On, Off or Mixed.
	MIGMode     string `yaml:"mig_mode,omitempty" json:"mig_mode,omitempty"`
	ECCMode     string `yaml:"ecc_mode,omitempty" json:"ecc_mode,omitempty"`
	Persistence string `yaml:"persistence,omitempty" json:"persistence,omitempty"`
	// TimeSynchronised is Yes or No, as the kernel has it from its time daemon.
	TimeSynchronised string `yaml:"time_synchronised,omitempty" json:"time_synchronised,omitempty"`
	// TimeOffsetSeconds is a bound of the clock's error in seconds, a number.
	TimeOffsetSeconds string `yaml:"time_offset_seconds,omitempty" json:"time_offset_seconds,omitempty"`
	// ContainerCUDA and BurnIn are Passed, or how the command ended.
	ContainerCUDA string `yaml:"container_cuda,omitempty" json:"container_cuda,omitempty"`
	BurnIn        string `yaml:"burn_in,omitempty" json:"burn_in,omitempty"`
	GPUModel      string `yaml:"gpu_model,omitempty" json:"gpu_model,omitempty"`
	GPUCount      int    `yaml:"gpu_count,omitempty" json:"gpu_count,omitempty"`
	Simulated     bool   `yaml:"simulated,omitempty" json:"simulated,omitempty"`
}

// Values of facts.
const (
	On     = "on"
	Off    = "off"
	Mixed  = "mixed" // not the same on all GPUs
	Yes    = "yes"
	No     = "no"
	Passed = "passed"
)

// Texts returns the facts that are known, by name, but for Simulated.
func (f Facts) Texts() map[string]string {
	out := map[string]string{}
	v := reflect.ValueOf(f)
	for name, i := range yamlFields(v.Type()) {
		if field := v.Field(i); field.Kind() != reflect.Bool && !field.IsZero() {
			out[name] = fmt.Sprint(field.Interface())
		}
	}
	return out
}

// ReadFacts is the inverse of Texts. Names that it does not know are left out; an
// error names the fact that is no number.
func ReadFacts(texts map[string]string) (Facts, error) {
	var f Facts
	v := reflect.ValueOf(&f).Elem()
	for name, i := range yamlFields(v.Type()) {
		text := texts[name]
		switch field := v.Field(i); {
		case text == "":
		case field.Kind() == reflect.String:
			field.SetString(text)
		case field.Kind() == reflect.Int:
			n, err := strconv.ParseUint(text, 10, 31)
			if err != nil {
				return f, fmt.Errorf("%s: %s is no number", name, quote(text))
			}
			field.SetInt(int64(n))
		}
	}
	return f, nil
}

// Or returns f with what it does not know taken from older.
func (f Facts) Or(older Facts) Facts {
	v, o := reflect.ValueOf(&f).Elem(), reflect.ValueOf(older)
	for i := range v.NumField() {
		if field := v.Field(i); field.Kind() != reflect.Bool && field.IsZero() {
			field.Set(o.Field(i))
		}
	}
	return f
}

// Baseline is what a node of a class must tell of itself to be admitted. What is
// zero is not asked for; a fact that is asked for and not told is a difference.
type Baseline struct {
	Driver  Versions `yaml:"driver,omitempty"`
	CUDA    Versions `yaml:"cuda,omitempty"`
	Toolkit Versions `yaml:"toolkit,omitempty"`
	Kernel  Versions `yaml:"kernel,omitempty"`
	// VBIOS lists the versions that a GPU may have, compared letter by letter.
	VBIOS Names `yaml:"vbios,omitempty"`
	// MIGMode, ECCMode and Persistence are On or Off, for all GPUs of the node.
	MIGMode     string `yaml:"mig_mode,omitempty"`
	ECCMode     string `yaml:"ecc_mode,omitempty"`
	Persistence string `yaml:"persistence,omitempty"`
	// TimeSynchronised asks for a clock that a time daemon holds,
	// MaxTimeOffsetSeconds for one that is not further off, in seconds.
	TimeSynchronised     bool    `yaml:"time_synchronised,omitempty"`
	MaxTimeOffsetSeconds float64 `yaml:"max_time_offset_seconds,omitempty"`
	// ContainerCUDA asks for CUDA that starts inside a container, BurnIn for a
	// burn-in that passed: commands of the agent's configuration.
	ContainerCUDA bool `yaml:"container_cuda,omitempty"`
	BurnIn        bool `yaml:"burn_in,omitempty"`
}

// Names is a list of texts of which one must be met; a site file may write a single
// one without a list.
type Names []string

// Difference is one fact that is not as a baseline wants it.
type Difference struct {
	Name string `json:"name"` // the fact's
	Want string `json:"want"`
	Got  string `json:"got,omitempty"` // empty: not told
}

// String says the difference in a few words.
func (d Difference) String() string {
	got := d.Got
	switch {
	case got == "":
		got = "not told"
	case len(got) > maxShown || strings.ContainsFunc(got, unicode.IsControl):
		got = quote(got)
	}
	return fmt.Sprintf("%s %s, want %s", strings.ReplaceAll(d.Name, "_", " "), got, d.Want)
}

// Empty tells whether the baseline asks for nothing.
func (b *Baseline) Empty() bool { return reflect.ValueOf(b).Elem().IsZero() }

// Requirement is one line of a baseline against the facts of a node.
type Requirement struct {
	Difference
	Met bool `json:"met"`
}

// Check returns the facts that are not as b wants them, in the order of its keys.
func (b *Baseline) Check(f Facts) []Difference {
	var out []Difference
	for _, r := range b.Requirements(f) {
		if !r.Met {
			out = append(out, r.Difference)
		}
	}
	return out
}

// Requirements returns every line of b, in the order of its keys, with what f says of it.
func (b *Baseline) Requirements(f Facts) []Requirement {
	var out []Requirement
	need := func(asked bool, name, got, want string, met func() bool) {
		if asked {
			out = append(out, Requirement{Difference{name, want, got}, got != "" && met()})
		}
	}
	versions := func(name, got string, want Versions) {
		need(len(want) > 0, name, got, strings.Join(want, " or "), func() bool { return want.Allow(got) })
	}
	equal := func(asked bool, name, got, want string) {
		need(asked, name, got, want, func() bool { return got == want })
	}
	versions("driver", f.Driver, b.Driver)
	versions("cuda", f.CUDA, b.CUDA)
	versions("toolkit", f.Toolkit, b.Toolkit)
	versions("kernel", f.Kernel, b.Kernel)
	need(len(b.VBIOS) > 0, "vbios", f.VBIOS, strings.Join(b.VBIOS, " or "), func() bool {
		return !slices.ContainsFunc(strings.Split(f.VBIOS, ", "), func(one string) bool { return !slices.Contains(b.VBIOS, one) })
	})
	equal(b.MIGMode != "", "mig_mode", f.MIGMode, b.MIGMode)
	equal(b.ECCMode != "", "ecc_mode", f.ECCMode, b.ECCMode)
	equal(b.Persistence != "", "persistence", f.Persistence, b.Persistence)
	equal(b.TimeSynchronised, "time_synchronised", f.TimeSynchronised, Yes)
	need(b.MaxTimeOffsetSeconds > 0, "time_offset_seconds", f.TimeOffsetSeconds, fmt.Sprintf("at most %g", b.MaxTimeOffsetSeconds), func() bool {
		offset, err := strconv.ParseFloat(f.TimeOffsetSeconds, 64)
		return err == nil && offset >= 0 && offset <= b.MaxTimeOffsetSeconds
	})
	equal(b.ContainerCUDA, "container_cuda", f.ContainerCUDA, Passed)
	equal(b.BurnIn, "burn_in", f.BurnIn, Passed)
	return out
}

// Fitting returns facts that meet b: those of a simulated node.
func (b *Baseline) Fitting() Facts {
	f := Facts{
		Driver: b.Driver.some(), CUDA: b.CUDA.some(), Toolkit: b.Toolkit.some(), Kernel: b.Kernel.some(),
		MIGMode: b.MIGMode, ECCMode: b.ECCMode, Persistence: b.Persistence,
	}
	if len(b.VBIOS) > 0 {
		f.VBIOS = b.VBIOS[0]
	}
	if b.TimeSynchronised {
		f.TimeSynchronised = Yes
	}
	if b.MaxTimeOffsetSeconds > 0 {
		f.TimeOffsetSeconds = "0"
	}
	if b.ContainerCUDA {
		f.ContainerCUDA = Passed
	}
	if b.BurnIn {
		f.BurnIn = Passed
	}
	return f
}

// check reports what is wrong with a class' baseline.
func (b *Baseline) check(fail failFunc) {
	b.Driver.check("baseline.driver", fail)
	b.CUDA.check("baseline.cuda", fail)
	b.Toolkit.check("baseline.toolkit", fail)
	b.Kernel.check("baseline.kernel", fail)
	if b.VBIOS != nil && len(b.VBIOS) == 0 {
		fail("baseline.vbios", "an empty list allows nothing")
	}
	for i, name := range b.VBIOS {
		if !isWord(name, "._-", maxPartBytes) {
			fail(index1("baseline.vbios", i), "%s; want a version such as 96.00.30.00.01", quote(name))
		}
	}
	for _, m := range []struct{ key, mode string }{{"mig_mode", b.MIGMode}, {"ecc_mode", b.ECCMode}, {"persistence", b.Persistence}} {
		if m.mode != "" && m.mode != On && m.mode != Off {
			fail("baseline."+m.key, "%s; want on or off", quote(m.mode))
		}
	}
}
