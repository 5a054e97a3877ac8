// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rackpulse/rackpulse/registry"
)

// tokenVerb is "rackpulse registry token".
type tokenVerb struct {
	node, role, name string
	out, tokensFile  string
}

func registerToken(top *kingpin.CmdClause) verb {
	v := &tokenVerb{}
	cmd := top.Command("token", "Make a token: for a node's beats, or with --role for people and programs.")
	cmd.Arg("node", "Node, or agent of facility devices, that may beat with it.").StringVar(&v.node)
	cmd.Flag("role", "read or operate: a token for the API, of --name.").EnumVar(&v.role, registry.RoleRead, registry.RoleOperate)
	cmd.Flag("name", "Who acts with it, as the audit will say.").StringVar(&v.name)
	cmd.Flag("out", "File that the token is written to; it must not exist.").Required().StringVar(&v.out)
	cmd.Flag("tokens-file", "Tokens file of the registry that gets the entry; without it the entry is printed.").StringVar(&v.tokensFile)
	return verb{cmd: cmd, run: v.run}
}

// entry is the token's line of a tokens file.
func (v *tokenVerb) entry(token string) (string, error) {
	sum := sha256.Sum256([]byte(token))
	digest := hex.EncodeToString(sum[:])
	switch {
	case v.node != "" && v.role == "" && v.name == "":
		return fmt.Sprintf("- {token_sha256: %s, role: node, node: %q}\n", digest, v.node), nil
	case v.node == "" && v.role != "" && v.name != "":
		return fmt.Sprintf("- {token_sha256: %s, role: %s, name: %q}\n", digest, v.role, v.name), nil
	}
	return "", errors.New("want a node, or --role and --name")
}

// run makes the token. It is only ever in the file; the registry keeps its digest.
func (v *tokenVerb) run(_ context.Context, std stdio) error {
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // never fails
	token := hex.EncodeToString(raw)
	entry, err := v.entry(token)
	if err != nil {
		return err
	}
	if err := appendTo(v.out, token+"\n", os.O_EXCL); err != nil {
		return err
	}
	if v.tokensFile == "" {
		_, err = fmt.Fprint(std.out, entry)
		return err
	}
	if err := appendTo(v.tokensFile, entry, os.O_APPEND); err != nil {
		return err
	}
	_, err = fmt.Fprintf(std.out, "%s holds the token; reload the registry to take it\n", v.out)
	return err
}

// appendTo writes text to a file that only its owner may read.
func appendTo(path, text string, flag int) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|flag, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = f.WriteString(text)
	return err
}
