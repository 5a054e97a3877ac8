// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rackpulse/rackpulse/collector/facility"
)

// implausibleFound is the exit status of a probe that flags something.
const implausibleFound = exitCode(3)

// probeVerb is "rackpulse facility probe".
type probeVerb struct {
	address     string
	profile     string
	profileFile string
	snmp        facility.SNMPConfig
	timeout     time.Duration
	asJSON      bool
	all         bool
}

func registerFacility(app *kingpin.Application) []verb {
	v := &probeVerb{}
	parent := app.Command("facility", "Tools for facility devices.")
	cmd := parent.Command("probe", "Identify a device by SNMP and show each of its readings with raw value, scale and source. Exit status 3: something is implausible.")
	cmd.Arg("host", "Host or host:port.").Required().StringVar(&v.address)
	cmd.Flag("profile", "File of a profile of your own.").PlaceHolder("FILE").StringVar(&v.profileFile)
	cmd.Flag("profile-name", "Built-in profile; without it the device is identified.").PlaceHolder("NAME").StringVar(&v.profile)
	cmd.Flag("snmp-version", "1, 2c or 3.").Default("2c").EnumVar(&v.snmp.Version, "1", "2c", "3")
	cmd.Flag("community-file", "File with the community, for versions 1 and 2c.").PlaceHolder("FILE").StringVar(&v.snmp.CommunityFile)
	cmd.Flag("user", "User, for version 3.").StringVar(&v.snmp.User)
	cmd.Flag("auth", "Authentication, for version 3: md5, sha, sha224, sha256, sha384 or sha512.").StringVar(&v.snmp.Auth)
	cmd.Flag("auth-file", "File with the passphrase of the authentication.").PlaceHolder("FILE").StringVar(&v.snmp.AuthFile)
	cmd.Flag("privacy", "Encryption, for version 3: des, aes, aes192, aes256, aes192c or aes256c.").StringVar(&v.snmp.Privacy)
	cmd.Flag("privacy-file", "File with the passphrase of the encryption.").PlaceHolder("FILE").StringVar(&v.snmp.PrivacyFile)
	cmd.Flag("context", "Context, for version 3.").StringVar(&v.snmp.Context)
	cmd.Flag("timeout", "Time for the whole probe.").Default("1m").DurationVar(&v.timeout)
	cmd.Flag("all", "Also show what the device has no value for.").BoolVar(&v.all)
	cmd.Flag("json", "Print JSON.").BoolVar(&v.asJSON)
	return []verb{{cmd, v.run}}
}

func (v *probeVerb) run(ctx context.Context, std stdio) error {
	ctx, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	report, err := facility.ProbeSNMP(ctx, v.address, v.snmp, v.profile, v.profileFile)
	if err != nil {
		return err
	}
	if v.asJSON {
		err = writeJSON(std.out, report)
	} else {
		err = v.write(std.out, report)
	}
	if err != nil {
		return err
	}
	for _, e := range report.Errors {
		fmt.Fprintf(std.err, "rackpulse: %s: %s\n", report.Address, e)
	}
	if !slices.ContainsFunc(report.Values, func(x facility.ProbeValue) bool { return x.Value != nil }) {
		return fmt.Errorf("%s: the device has no value for any object of profile %s", report.Address, report.Profile)
	}
	for _, x := range report.Values {
		if x.Implausible {
			return implausibleFound
		}
	}
	for _, c := range report.Checks {
		if c.Implausible {
			return implausibleFound
		}
	}
	return nil
}

func (v *probeVerb) write(out io.Writer, r *facility.ProbeReport) error {
	fmt.Fprintf(out, "%s: %s\n", r.Address, r.SysDescr)
	fmt.Fprintf(out, "sysObjectID %s, model %s, firmware %s\nprofile %s (%s)\n\n", r.SysObjectID, orDash(r.Model), orDash(r.Firmware), r.Profile, r.Kind)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "OF\tQUANTITY\tPART\tVALUE\tRAW\tSCALE\tOBJECT\tOID\tNOTE")
	for _, x := range r.Values {
		if x.Value == nil && !v.all {
			continue
		}
		value, scale, note := "-", "-", x.Note
		if x.Value != nil {
			value = strconv.FormatFloat(*x.Value, 'g', 7, 64) + " " + x.BaseUnit
		}
		if x.Text != "" {
			value = x.Text
		}
		if x.Factor != 0 {
			scale = strconv.FormatFloat(x.Factor, 'g', 6, 64) + " " + x.Unit
		}
		if x.Implausible {
			note = "IMPLAUSIBLE: " + note
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", orDash(x.Owner), x.Quantity, orDash(x.Part), value, orDash(x.Raw), scale, orDash(x.Object), orDash(x.OID), note)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for i, c := range r.Checks {
		if i == 0 {
			fmt.Fprintln(out)
		}
		verdict := "plausible"
		if c.Implausible {
			verdict = "IMPLAUSIBLE: " + c.Text
		}
		fmt.Fprintf(out, "check %s %s: %s\n", c.Check, orDash(c.Owner), verdict)
	}
	return nil
}
