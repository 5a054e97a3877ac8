// SPDX-License-Identifier: Apache-2.0

package config

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"os"
	"strings"
)

const (
	maxSecretBytes = 64 << 10
	hidden         = "<secret>"
)

// Secret is a password, token or key. Nothing prints it: fmt, loggers, JSON and
// YAML all write "<secret>". It comes from a file, never from the configuration.
type Secret struct {
	// The value lies behind a pointer, so that even fmt's look into unexported
	// fields shows an address only.
	value *string
}

// ReadSecret reads a secret from a regular file of at most 64 KiB, less one
// newline at its end. It refuses a file that everybody on the machine may read.
func ReadSecret(path string) (Secret, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Secret{}, err
	}
	if !info.Mode().IsRegular() {
		return Secret{}, fmt.Errorf("%s: want a regular file", path)
	}
	if mode := info.Mode().Perm(); mode&0o004 != 0 {
		return Secret{}, fmt.Errorf("%s: everybody may read this secret (mode %04o); run: chmod o-r %s", path, mode, path)
	}
	data, err := ReadFile(path, maxSecretBytes)
	if err != nil {
		return Secret{}, err
	}
	value := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if value == "" {
		return Secret{}, fmt.Errorf("%s: the secret is empty", path)
	}
	return Secret{&value}, nil
}

// Reveal returns the value, "" for the zero Secret.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// Equal compares two secrets in a time that does not tell their contents.
func (s Secret) Equal(other Secret) bool {
	return subtle.ConstantTimeCompare([]byte(s.Reveal()), []byte(other.Reveal())) == 1
}

// String implements fmt.Stringer without the value.
func (s Secret) String() string { return hidden }

// GoString implements fmt.GoStringer without the value.
func (s Secret) GoString() string { return hidden }

// MarshalText implements encoding.TextMarshaler, which JSON, YAML and logfmt
// use, without the value.
func (s Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// MarshalJSON implements json.Marshaler without the value.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + hidden + `"`), nil }

// MarshalYAML implements yaml.Marshaler without the value.
func (s Secret) MarshalYAML() (any, error) { return hidden, nil }

// UnmarshalYAML refuses secrets written into a configuration.
func (s *Secret) UnmarshalYAML(func(any) error) error {
	return errors.New("a secret must come from a file of its own")
}
