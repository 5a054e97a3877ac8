// SPDX-License-Identifier: Apache-2.0

package xid

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// newUnitBits is the first driver branch whose register names the unit in
// seven bits instead of ten.
const newUnitBits = 575

const maxRules = 1000

// NVLink is the part of a line with the codes 144 to 150 that describes the link.
type NVLink struct {
	Unit      string   `json:"unit"`            // for example RLW_RXPIPE
	Word      string   `json:"word"`            // Fatal, Nonfatal or another word of the line
	Link      int      `json:"link"`            // number of the link; -1 means none
	Registers []uint32 `json:"registers"`       // interrupt information, status, and more
	Cleared   bool     `json:"context_cleared"` // XC1: the program's context was taken down
}

var nvlinkForm = regexp.MustCompile(`^([A-Z][A-Z0-9_]{1,40}) (Nonfatal|Non-fatal|Fatal|Link Fatal) XC([01]) i\d{1,3} Link (-?\d{1,3}) \(((?:0x[0-9a-fA-F]{1,8} ?){1,8})\)`)

// parseNVLink reads the text behind the code.
func parseNVLink(text string) *NVLink {
	m := nvlinkForm.FindStringSubmatch(text)
	if m == nil {
		return nil
	}
	link, _ := strconv.Atoi(m[4]) // at most three digits
	n := &NVLink{Unit: m[1], Word: m[2], Cleared: m[3] == "1", Link: link}
	for _, word := range strings.Fields(m[5]) {
		v, _ := strconv.ParseUint(word[2:], 16, 32) // at most eight digits
		n.Registers = append(n.Registers, uint32(v))
	}
	return n
}

func (n *NVLink) fatal() bool { return n.Word == "Fatal" || n.Word == "Link Fatal" }

// nvlinkRule is one row of the decode table, see catalogue.yml.
type nvlinkRule struct {
	XID    int      `yaml:"xid"`
	Unit   []string `yaml:"unit"`
	V1     uint32   `yaml:"v1"`
	V2     uint32   `yaml:"v2"`
	Sub    []uint32 `yaml:"sub"` // none means 0
	Status []uint32 `yaml:"status"`
	Clear  bool     `yaml:"clear"` // the bit above the unit must be 0
	Then   string   `yaml:"then"`
	Look   []string `yaml:"look"`
}

var ruleFields = []string{"xid", "unit", "v1", "v2", "sub", "status", "clear", "then", "look"}

// matches says whether the row is about this line; branch is the driver's
// major version or 0 when unknown, then either layout of the register will do.
func (r *nvlinkRule) matches(code int, n *NVLink, branch int) bool {
	if r.XID != code || len(n.Registers) < 2 || !slices.Contains(r.Unit, n.Unit) || !slices.Contains(r.Status, n.Registers[1]) {
		return false
	}
	info := n.Registers[0]
	sub := info >> 20 & 0x3f
	if sub != 0 && len(r.Sub) == 0 || len(r.Sub) > 0 && !slices.Contains(r.Sub, sub) {
		return false
	}
	old := branch < newUnitBits && r.names(info, r.V1, 10)
	return old || (branch == 0 || branch >= newUnitBits) && r.names(info, r.V2, 7)
}

// names says whether the lowest bits of the register name the unit.
func (r *nvlinkRule) names(info, unit uint32, bits int) bool {
	return info&(1<<bits-1) == unit && (!r.Clear || info>>bits&1 == 0)
}

// nvlinkRules reads the decode table; a site's table replaces ours.
func (m *merger) nvlinkRules(n *yaml.Node) error {
	if n == nil {
		return nil
	}
	if n.Kind != yaml.SequenceNode || len(n.Content) > maxRules {
		return m.errorf(n, "nvlink5: want a list of at most %d rows", maxRules)
	}
	var rules []nvlinkRule
	for _, row := range n.Content {
		err := m.each(row, "nvlink5", func(key, _ *yaml.Node) error {
			if !slices.Contains(ruleFields, key.Value) {
				return m.errorf(key, "nvlink5: unknown field %q", short(key.Value))
			}
			return nil
		})
		if err != nil {
			return err
		}
		var r nvlinkRule
		if err := m.decode(row, "nvlink5", &r); err != nil {
			return err
		}
		if problem := m.ruleProblem(&r); problem != "" {
			return m.errorf(row, "nvlink5: %s", problem)
		}
		rules = append(rules, r)
	}
	m.catalogue.nvlink5 = rules
	return nil
}

func (m *merger) ruleProblem(r *nvlinkRule) string {
	switch {
	case r.XID < 144 || r.XID > 150:
		return "xid must be 144 to 150"
	case len(r.Unit) == 0 || len(r.Status) == 0:
		return "unit and status must be set"
	case r.V1 > 0x3ff || r.V2 > 0x7f:
		return "v1 has ten bits and v2 seven"
	case !slices.Contains([]string{"none", "follow", "reset"}, r.Then):
		return fmt.Sprintf("then is %q, want none, follow or reset", short(r.Then))
	}
	for _, key := range r.Look {
		if m.catalogue.actions[key] == "" {
			return fmt.Sprintf("unknown action %q", short(key))
		}
	}
	return ""
}

// branch is the major version of a driver such as "570.124.06", or 0.
func branch(driver string) int {
	major, _, _ := strings.Cut(strings.TrimPrefix(driver, "R"), ".")
	n, err := strconv.Atoi(major)
	if err != nil || n < 0 {
		return 0
	}
	return n
}
