// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"gopkg.in/yaml.v3"

	"github.com/rackpulse/rackpulse/config"
)

// Roles of tokens.
const (
	// RoleRead may read the API.
	RoleRead = "read"
	// RoleOperate may also change the state of nodes.
	RoleOperate = "operate"
	// RoleNode may beat for one node, and nothing else.
	RoleNode = "node"
)

const (
	// maxTokens bounds the tokens file: 100,000 nodes with two tokens each.
	maxTokens = 200000
	// maxTokensFile is what they take, bytes.
	maxTokensFile = 64 << 20
	// minToken is the shortest token in clear: 16 characters of a random
	// hexadecimal text are 64 bits, which no one guesses over a network.
	minToken = 16
	// maxName bounds a token's name and a node's, bytes, as beats do.
	maxName = 256
)

// tokenEntry is one entry of the tokens file.
type tokenEntry struct {
	// Token is the token itself, TokenSHA256 its SHA-256 in hexadecimal: one of
	// the two.
	Token       string `yaml:"token"`
	TokenSHA256 string `yaml:"token_sha256"`
	Role        string `yaml:"role"`
	// Name is who acts, as the ledger will say; for roles read and operate.
	Name string `yaml:"name"`
	// Node is whom the token may beat for: a node, or the name of an agent that
	// polls facility devices only.
	Node string `yaml:"node"`
}

// digest is the SHA-256 of a token.
type digest [sha256.Size]byte

// person is one token of the HTTP API.
type person struct {
	digest  digest
	name    string
	operate bool
}

// tokens are the tokens in force. The zero value holds none.
type tokens struct {
	file   bool // there is a tokens file
	people []person
	nodes  map[string][]digest // by node: several while they are exchanged
}

// loadTokens reads a tokens file; it must not be readable by everybody.
func loadTokens(path string) (*tokens, error) {
	if path == "" {
		return &tokens{}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&0o004 != 0 {
		return nil, fmt.Errorf("%s: everybody may read these tokens (mode %04o); run: chmod o-r %s", path, mode, path)
	}
	data, err := config.ReadFile(path, maxTokensFile)
	if err != nil {
		return nil, err
	}
	return parseTokens(path, data)
}

// parseTokens reads the list of tokens; its errors name the line and never the
// token.
func parseTokens(path string, data []byte) (*tokens, error) {
	var entries []tokenEntry
	if err := config.Strict(path, data, &entries); err != nil {
		return nil, err
	}
	if len(entries) > maxTokens {
		return nil, fmt.Errorf("%s: %d tokens, %d are the most", path, len(entries), maxTokens)
	}
	line := func(i int) string { return path }
	var root yaml.Node
	if yaml.Unmarshal(data, &root) == nil && len(root.Content) == 1 && len(root.Content[0].Content) == len(entries) {
		line = func(i int) string { return fmt.Sprintf("%s:%d", path, root.Content[0].Content[i].Line) }
	}
	t := &tokens{file: true, nodes: map[string][]digest{}}
	seen := make(map[digest]bool, len(entries))
	var errs []error
	for i := range entries {
		d, err := entries[i].check()
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", line(i), err))
			continue
		case seen[d]:
			errs = append(errs, fmt.Errorf("%s: this token is given twice", line(i)))
			continue
		}
		seen[d] = true
		t.add(&entries[i], d)
	}
	return t, errors.Join(errs...)
}

func (t *tokens) add(e *tokenEntry, d digest) {
	if e.Role == RoleNode {
		t.nodes[e.Node] = append(t.nodes[e.Node], d)
		return
	}
	t.people = append(t.people, person{digest: d, name: e.Name, operate: e.Role == RoleOperate})
}

// check checks an entry and returns its token's digest.
func (e *tokenEntry) check() (digest, error) {
	var d digest
	switch {
	case (e.Token == "") == (e.TokenSHA256 == ""):
		return d, errors.New("want token or token_sha256, one of them")
	case e.Token != "" && len(e.Token) < minToken:
		return d, fmt.Errorf("token of %d characters, want at least %d; one way to make one: openssl rand -hex 32", len(e.Token), minToken)
	case e.Token != "":
		d = sha256.Sum256([]byte(e.Token))
	default:
		sum, err := hex.DecodeString(e.TokenSHA256)
		if err != nil || len(sum) != len(d) {
			return d, fmt.Errorf("token_sha256: want %d hexadecimal digits; one way to get them: printf %%s TOKEN | sha256sum", 2*len(d))
		}
		copy(d[:], sum)
	}
	return d, e.checkRole()
}

func (e *tokenEntry) checkRole() error {
	switch e.Role {
	case RoleRead, RoleOperate:
		if e.Node != "" {
			return fmt.Errorf("node is for role %s only", RoleNode)
		}
		return checkActor(e.Name)
	case RoleNode:
		if e.Node == "" || len(e.Node) > maxName {
			return fmt.Errorf("role %s wants node: whom it may beat for", RoleNode)
		}
		return nil
	default:
		return fmt.Errorf("role %q, want %s, %s or %s", e.Role, RoleRead, RoleOperate, RoleNode)
	}
}

// checkActor refuses names that the ledger uses for others.
func checkActor(name string) error {
	switch name {
	case "":
		return errors.New("name is missing: who acts with this token")
	case "registry", "agent", actorReload:
		return fmt.Errorf("name %q is what the ledger calls the program itself", name)
	}
	return checkText("name", name)
}

// person returns whose token it is. All are compared, and each in a time that
// does not tell its contents.
func (t *tokens) person(token string) (person, bool) {
	d := digest(sha256.Sum256([]byte(token)))
	found := -1
	for i := range t.people {
		if subtle.ConstantTimeCompare(d[:], t.people[i].digest[:]) == 1 {
			found = i
		}
	}
	if found < 0 {
		return person{}, false
	}
	return t.people[found], true
}

// mayBeat says whether the token is one of the node's.
func (t *tokens) mayBeat(token, node string) bool {
	d := digest(sha256.Sum256([]byte(token)))
	ok := 0
	for i := range t.nodes[node] {
		ok |= subtle.ConstantTimeCompare(d[:], t.nodes[node][i][:])
	}
	return ok == 1
}
