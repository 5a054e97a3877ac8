// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rackpulse/rackpulse/config"
)

const (
	knownFile     = "gpus.json"
	maxKnownBytes = 1 << 20
	maxGPUs       = 1024 // of one node, remembered ones included
)

// knownGPU is a GPU that this node has or had.
type knownGPU struct {
	UUID     string `json:"uuid"`
	Index    string `json:"index"`
	PCIBusID string `json:"pci_bus_id"`

	seen bool // since the agent started
}

// knownGPUs remembers the node's GPUs over restarts, so that one that is missing
// from the start can be named. The file is a cache: without it only the count of
// the site file tells that a GPU is missing.
type knownGPUs struct {
	path string // "": memory only
	gpus map[string]*knownGPU
}

// loadKnown reads the list in the state directory; an empty directory name means
// that nothing is kept.
func loadKnown(stateDir string) (*knownGPUs, error) {
	k := &knownGPUs{gpus: make(map[string]*knownGPU)}
	if stateDir == "" {
		return k, nil
	}
	k.path = filepath.Join(stateDir, knownFile)
	f, err := os.Open(k.path)
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	if err != nil {
		return k, err
	}
	defer f.Close()
	var list []*knownGPU
	if err := json.NewDecoder(io.LimitReader(f, maxKnownBytes)).Decode(&list); err != nil {
		return k, fmt.Errorf("%s: %w", k.path, err)
	}
	for _, g := range list {
		if g != nil && g.UUID != "" && len(k.gpus) < maxGPUs {
			k.gpus[g.UUID] = g
		}
	}
	return k, nil
}

// update takes the devices of a pass and returns the known GPUs that are missing
// from it. expected is the site file's count, 0: not known. With it, GPUs of an
// earlier run count as missing up to that count, any further ones as unseen, and
// once the count is reached those that are not there any more are forgotten: they
// were taken out or swapped. Without it only GPUs seen since the start can be missing.
func (k *knownGPUs) update(devices []Device, expected int) (missing []*knownGPU, err error) {
	present := make(map[string]bool, len(devices))
	nameless, changed := 0, false
	for i := range devices {
		d := &devices[i]
		switch {
		case d.UUID == "":
			nameless++
		case !present[d.UUID]:
			present[d.UUID] = true
			changed = k.learn(d) || changed
		}
	}
	for _, g := range k.gpus {
		if !present[g.UUID] {
			missing = append(missing, g)
		}
	}
	slices.SortFunc(missing, func(a, b *knownGPU) int {
		if a.seen != b.seen { // the surer ones first
			if a.seen {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Index+" "+a.UUID, b.Index+" "+b.UUID)
	})
	if expected > 0 {
		room := min(max(expected-len(present)-nameless, 0), len(missing))
		for _, g := range missing[room:] {
			delete(k.gpus, g.UUID)
			changed = true
		}
		missing = missing[:room]
		// Those that this agent never saw have no name.
		for n := len(present) + nameless + room; n < min(expected, maxGPUs); n++ {
			missing = append(missing, &knownGPU{Index: fmt.Sprintf("unseen%d", n)})
		}
	} else {
		missing = slices.DeleteFunc(missing, func(g *knownGPU) bool { return !g.seen })
	}
	if changed {
		err = k.save()
	}
	return missing, err
}

// learn remembers a device; it reports whether that is news for the file.
func (k *knownGPUs) learn(d *Device) bool {
	g := k.gpus[d.UUID]
	if g == nil {
		if len(k.gpus) >= maxGPUs {
			return false
		}
		k.gpus[d.UUID] = &knownGPU{UUID: d.UUID, Index: d.Index, PCIBusID: d.PCIBusID, seen: true}
		return true
	}
	g.seen = true
	if d.Lost || g.Index == d.Index && g.PCIBusID == d.PCIBusID {
		return false
	}
	g.Index, g.PCIBusID = d.Index, d.PCIBusID
	return true
}

// name gives lost devices without a UUID the one that was last seen in their place.
func (k *knownGPUs) name(devices []Device) {
	used := make(map[string]bool, len(devices))
	for i := range devices {
		used[devices[i].UUID] = true
	}
	for i := range devices {
		d := &devices[i]
		if !d.Lost || d.UUID != "" {
			continue
		}
		for _, g := range k.gpus {
			samePlace := g.PCIBusID == d.PCIBusID
			if d.PCIBusID == "" {
				samePlace = g.Index == d.Index
			}
			if samePlace && !used[g.UUID] {
				d.UUID, d.PCIBusID = g.UUID, g.PCIBusID
				used[g.UUID] = true
				break
			}
		}
	}
}

// save writes the list; the old one stays whole if that fails.
func (k *knownGPUs) save() error {
	if k.path == "" {
		return nil
	}
	list := make([]*knownGPU, 0, len(k.gpus))
	for _, g := range k.gpus {
		list = append(list, g)
	}
	slices.SortFunc(list, func(a, b *knownGPU) int { return strings.Compare(a.UUID, b.UUID) })
	data, err := json.MarshalIndent(list, "", " ")
	if err != nil {
		return err
	}
	return config.ReplaceFile(k.path, append(data, '\n'))
}
