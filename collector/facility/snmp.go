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

	"github.com/gosnmp/gosnmp"

	"github.com/rackpulse/rackpulse/config"
	"github.com/rackpulse/rackpulse/site"
)

func init() {
	Register("snmp", "PDUs, UPSs, cooling units, sensors and switches by SNMP v1, v2c and v3, read by device profiles", newSNMP)
}

const (
	defaultSNMPTimeout = 2 * time.Second
	defaultSNMPRetries = 1
	// defaultRediscover is how often the rows of tables are looked up again; a
	// restart of the device does it at once.
	defaultRediscover = 10 * time.Minute
	maxCommunity      = 127 // bytes; gosnmp writes the length into one
)

// SNMPConfig is the block "snmp" of an entry.
type SNMPConfig struct {
	// Version is 1, 2c (the default) or 3.
	Version string `yaml:"version"`
	// CommunityFile holds the community, for versions 1 and 2c.
	CommunityFile string `yaml:"community_file"`
	// User, and the files that hold the passphrases, for version 3. Without files
	// nothing is authenticated or encrypted.
	User        string `yaml:"user"`
	Auth        string `yaml:"auth"` // md5, sha (the default), sha224, sha256, sha384, sha512
	AuthFile    string `yaml:"auth_file"`
	Privacy     string `yaml:"privacy"` // des, aes (the default), aes192, aes256, aes192c, aes256c
	PrivacyFile string `yaml:"privacy_file"`
	// Context is the context's name, for version 3.
	Context string `yaml:"context"`
	// Timeout bounds one request (2 s), Retries says how often it is repeated (1).
	Timeout time.Duration `yaml:"timeout"`
	Retries *int          `yaml:"retries"`
	// MaxRepetitions and MaxOIDs bound one GETBULK and one GET.
	MaxRepetitions int `yaml:"max_repetitions"`
	MaxOIDs        int `yaml:"max_oids"`
	// Rediscover is how often the rows of tables are looked up again (10 m).
	Rediscover time.Duration `yaml:"rediscover"`
	// Unit is the device's own number in a daisy chain; by default the lowest.
	Unit string `yaml:"unit"`
	// Chain names the devices behind the first one of a daisy chain: unit -> id.
	Chain map[string]string `yaml:"chain"`
	// Sensors names the devices of attached sensors.
	Sensors []SNMPSensor `yaml:"sensors"`
}

// SNMPSensor is a sensor attached to a PDU or another box.
type SNMPSensor struct {
	// Sensor is its number as "rackpulse facility probe" shows it.
	Sensor string `yaml:"sensor"`
	Device string `yaml:"device"`
	// Measures is inlet_temperature (the default) or outlet_temperature.
	Measures string `yaml:"measures"`
}

var authProtocols = map[string]gosnmp.SnmpV3AuthProtocol{
	"md5": gosnmp.MD5, "sha": gosnmp.SHA, "sha224": gosnmp.SHA224, "sha256": gosnmp.SHA256, "sha384": gosnmp.SHA384, "sha512": gosnmp.SHA512,
}

var privacyProtocols = map[string]gosnmp.SnmpV3PrivProtocol{
	"des": gosnmp.DES, "aes": gosnmp.AES, "aes192": gosnmp.AES192, "aes256": gosnmp.AES256, "aes192c": gosnmp.AES192C, "aes256c": gosnmp.AES256C,
}

func newSNMP(fc FactoryConfig) (Plan, error) {
	var c SNMPConfig
	if err := fc.Decode(&c); err != nil {
		return Plan{}, err
	}
	for _, file := range []*string{&c.CommunityFile, &c.AuthFile, &c.PrivacyFile} {
		*file = fc.Resolve(*file)
	}
	profile, err := profileFor(fc.Profile, fc.ProfileFile)
	if err != nil {
		return Plan{}, err
	}
	d, err := newSNMPDriver(fc.Address, c, profile, fc.Device.ID)
	if err != nil {
		return Plan{}, fmt.Errorf("snmp: %w", err)
	}
	d.kind = func() string { return fc.Kind(fc.Device.ID) }
	if kind := d.kind(); profile != nil && kind != "" && kind != profile.Kind {
		return Plan{}, fmt.Errorf("profile %s is for a %s, the device is a %s", profile.Name, profile.Kind, kind)
	}
	for _, s := range c.Sensors {
		if kind := fc.Kind(s.Device); kind != "" && kind != site.KindSensor {
			return Plan{}, fmt.Errorf("snmp: sensors: device %s is a %s", s.Device, kind)
		}
	}
	return Plan{
		Open:      func(context.Context) (Driver, error) { return d.fresh(), nil },
		Serves:    d.serves(fc.Device.ID),
		Exclusive: "snmp agent " + d.session.host + c.Context,
	}, nil
}

// profileFor loads the profile that an entry names; nil: the device tells.
func profileFor(name, file string) (*Profile, error) {
	var p *Profile
	var err error
	switch {
	case file != "":
		p, err = readProfile(file)
	case name != "" && name != "auto":
		p, err = loadProfile(name)
	default:
		return nil, nil
	}
	if err == nil && p.SNMP == nil {
		err = fmt.Errorf("profile %s has no section snmp", p.Name)
	}
	return p, err
}

// check fills in defaults and finds what is wrong.
func (c *SNMPConfig) check() error {
	if c.Version == "" {
		c.Version = "2c"
	}
	if c.Timeout == 0 {
		c.Timeout = defaultSNMPTimeout
	}
	if c.Rediscover == 0 {
		c.Rediscover = defaultRediscover
	}
	switch {
	case c.Timeout < 10*time.Millisecond || c.Timeout > time.Minute:
		return fmt.Errorf("timeout %s is not between 10ms and 1m", c.Timeout)
	case c.Retries != nil && (*c.Retries < 0 || *c.Retries > 10):
		return fmt.Errorf("retries %d is not between 0 and 10", *c.Retries)
	case c.MaxRepetitions < 0 || c.MaxRepetitions > maxBulk:
		return fmt.Errorf("max_repetitions %d is not between 1 and %d", c.MaxRepetitions, maxBulk)
	case c.MaxOIDs < 0 || c.MaxOIDs > gosnmp.MaxOids:
		return fmt.Errorf("max_oids %d is not between 1 and %d", c.MaxOIDs, gosnmp.MaxOids)
	case c.Rediscover < time.Minute:
		return fmt.Errorf("rediscover %s is shorter than a minute", c.Rediscover)
	}
	if err := c.checkNames(); err != nil {
		return err
	}
	_, err := c.credentials()
	return err
}

// checkNames checks the devices behind this one.
func (c *SNMPConfig) checkNames() error {
	for unit, id := range c.Chain {
		if unit == "" || id == "" {
			return errors.New("chain: want unit: device")
		}
	}
	seen := map[string]bool{}
	for i := range c.Sensors {
		s := &c.Sensors[i]
		if s.Measures == "" {
			s.Measures = "inlet_temperature"
		}
		switch {
		case s.Sensor == "" || s.Device == "":
			return fmt.Errorf("sensors[%d]: want sensor and device", i)
		case seen[s.Sensor]:
			return fmt.Errorf("sensors[%d]: sensor %s is there twice", i, s.Sensor)
		case s.Measures != "inlet_temperature" && s.Measures != "outlet_temperature":
			return fmt.Errorf("sensors[%d]: measures %q is neither inlet_temperature nor outlet_temperature", i, s.Measures)
		}
		seen[s.Sensor] = true
	}
	return nil
}

// credentials reads the secrets and returns a session that is not connected.
func (c *SNMPConfig) credentials() (*gosnmp.GoSNMP, error) {
	retries := defaultSNMPRetries
	if c.Retries != nil {
		retries = *c.Retries
	}
	g := &gosnmp.GoSNMP{Timeout: c.Timeout, Retries: retries, MaxOids: gosnmp.MaxOids, ContextName: c.Context}
	if c.Version == "3" {
		return g, c.userSecurity(g)
	}
	switch c.Version {
	case "1":
		g.Version = gosnmp.Version1
	case "2c":
		g.Version = gosnmp.Version2c
	default:
		return nil, fmt.Errorf("version %q is none of 1, 2c and 3", c.Version)
	}
	if c.User != "" || c.AuthFile != "" || c.PrivacyFile != "" || c.Auth != "" || c.Privacy != "" || c.Context != "" {
		return nil, errors.New("user, auth, privacy and context belong to version 3")
	}
	if c.CommunityFile == "" {
		return nil, errors.New("community_file is missing")
	}
	secret, err := config.ReadSecret(c.CommunityFile)
	if err != nil {
		return nil, fmt.Errorf("community_file: %w", err)
	}
	g.Community = secret.Reveal()
	if len(g.Community) > maxCommunity {
		return nil, fmt.Errorf("community_file: longer than %d bytes", maxCommunity)
	}
	return g, nil
}

// userSecurity sets the user of version 3.
func (c *SNMPConfig) userSecurity(g *gosnmp.GoSNMP) error {
	g.Version, g.SecurityModel, g.MsgFlags = gosnmp.Version3, gosnmp.UserSecurityModel, gosnmp.NoAuthNoPriv
	usm := &gosnmp.UsmSecurityParameters{UserName: c.User, AuthenticationProtocol: gosnmp.NoAuth, PrivacyProtocol: gosnmp.NoPriv}
	g.SecurityParameters = usm
	switch {
	case c.CommunityFile != "":
		return errors.New("community_file belongs to versions 1 and 2c")
	case c.User == "":
		return errors.New("user is missing")
	case c.AuthFile == "" && (c.PrivacyFile != "" || c.Auth != ""):
		return errors.New("auth_file is missing")
	case c.PrivacyFile == "" && c.Privacy != "":
		return errors.New("privacy_file is missing")
	case c.AuthFile == "":
		return nil
	}
	var known bool
	if usm.AuthenticationProtocol, known = authProtocols[orDefault(c.Auth, "sha")]; !known {
		return fmt.Errorf("auth %q is none of md5, sha, sha224, sha256, sha384, sha512", c.Auth)
	}
	if usm.PrivacyProtocol, known = privacyProtocols[orDefault(c.Privacy, "aes")]; !known {
		return fmt.Errorf("privacy %q is none of des, aes, aes192, aes256, aes192c, aes256c", c.Privacy)
	}
	var err error
	if usm.AuthenticationPassphrase, err = passphrase("auth_file", c.AuthFile); err != nil {
		return err
	}
	g.MsgFlags = gosnmp.AuthNoPriv
	if c.PrivacyFile == "" {
		usm.PrivacyProtocol = gosnmp.NoPriv
		return nil
	}
	g.MsgFlags = gosnmp.AuthPriv
	usm.PrivacyPassphrase, err = passphrase("privacy_file", c.PrivacyFile)
	return err
}

// passphrase reads a passphrase; RFC 3414 section 11.2 wants at least 8 bytes.
func passphrase(key, file string) (string, error) {
	secret, err := config.ReadSecret(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", key, err)
	}
	if len(secret.Reveal()) < 8 {
		return "", fmt.Errorf("%s: the passphrase is shorter than 8 bytes", key)
	}
	return secret.Reveal(), nil
}

func orDefault(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return strings.ToLower(text)
}

// hostPort takes an address apart; without a port it is 161.
func hostPort(address string) (string, uint16, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host, port = strings.Trim(address, "[]"), "161"
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if host == "" || err != nil || n == 0 || strings.ContainsAny(host, "/ ") {
		return "", 0, fmt.Errorf("address %q is not host or host:port", address)
	}
	return host, uint16(n), nil
}
