// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"errors"
	"fmt"
	"strings"

	"github.com/rackpulse/rackpulse/config"
)

// loginConfig are the keys with which a driver logs in. Secrets come from files;
// a path that is not absolute counts from the folder of the configuration.
type loginConfig struct {
	User         string `yaml:"user"`
	UserFile     string `yaml:"user_file"` // instead of user
	PasswordFile string `yaml:"password_file"`
}

// check resolves the paths. No key at all means no login.
func (c *loginConfig) check(resolve func(string) string) error {
	if c.User != "" && c.UserFile != "" {
		return errors.New("user and user_file are both given")
	}
	if (c.User == "" && c.UserFile == "") != (c.PasswordFile == "") {
		return errors.New("a user and password_file belong together")
	}
	if resolve != nil {
		c.UserFile, c.PasswordFile = resolve(c.UserFile), resolve(c.PasswordFile)
	}
	return nil
}

// read returns what the files hold now, so that a changed password is used at
// the next login.
func (c *loginConfig) read() (user string, password config.Secret, err error) {
	user = c.User
	if c.UserFile != "" {
		text, err := config.ReadFile(c.UserFile, 1<<10)
		if err != nil {
			return "", password, fmt.Errorf("user_file: %w", err)
		}
		user = strings.TrimSpace(string(text))
	}
	if c.PasswordFile == "" {
		return user, password, nil
	}
	if password, err = config.ReadSecret(c.PasswordFile); err != nil {
		return "", password, fmt.Errorf("password_file: %w", err)
	}
	return user, password, nil
}
