// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"github.com/prometheus/common/model"
)

// maxIdentityFile bounds the cache file: 1 MiB holds the labels of some ten
// thousand devices.
const maxIdentityFile = 1 << 20

// Origins of an Identity.
const (
	OriginConfig   = "config"
	OriginRegistry = "registry"
	OriginCache    = "cache"
	OriginNone     = "none"
)

// identityFile is the format of the cache file.
type identityFile struct {
	Node    map[string]string            `json:"node,omitempty"`
	Devices map[string]map[string]string `json:"devices,omitempty"`
}

// LoadIdentity reads what SaveIdentity wrote; its Origin is "cache". Where there
// is no such file it returns an Identity with Origin "none" and no error.
func LoadIdentity(path string) (Identity, error) {
	none := Identity{Origin: OriginNone}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("identity cache: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxIdentityFile+1))
	if err != nil {
		return none, fmt.Errorf("identity cache: %w", err)
	}
	if len(data) > maxIdentityFile {
		return none, fmt.Errorf("identity cache %s: larger than %d bytes", path, maxIdentityFile)
	}
	var file identityFile
	if err := json.Unmarshal(data, &file); err != nil {
		return none, fmt.Errorf("identity cache %s: %w", path, err)
	}
	id := Identity{Node: file.Node, Devices: file.Devices, Origin: OriginCache}
	if err := id.check(); err != nil {
		return none, fmt.Errorf("identity cache %s: %w", path, err)
	}
	return id, nil
}

// check refuses label names that Prometheus does not take.
func (id Identity) check() error {
	for name := range id.Node {
		if !model.LegacyValidation.IsValidLabelName(name) {
			return fmt.Errorf("node: invalid label name %q", name)
		}
	}
	for device, labels := range id.Devices {
		for name := range labels {
			if !model.LegacyValidation.IsValidLabelName(name) {
				return fmt.Errorf("device %s: invalid label name %q", device, name)
			}
		}
	}
	return nil
}

// SaveIdentity writes the labels to a file that only the owner can read. The
// file is replaced as a whole: a crash leaves the old or the new one.
func SaveIdentity(path string, id Identity) error {
	data, err := json.MarshalIndent(identityFile{id.Node, id.Devices}, "", "  ")
	if err != nil {
		return fmt.Errorf("identity cache %s: %w", path, err)
	}
	if len(data) > maxIdentityFile {
		return fmt.Errorf("identity cache %s: larger than %d bytes", path, maxIdentityFile)
	}
	if err := writeFile(path, append(data, '\n')); err != nil {
		return fmt.Errorf("identity cache: %w", err)
	}
	return nil
}

// writeFile writes a temporary file beside path and renames it over path.
func writeFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".tmp*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// MergeIdentity joins what the agent's own configuration, the registry and the
// cache say. Each label comes from the configuration, else from the registry,
// else from the cache. The cache is left out as a whole once the registry has
// answered (its Origin is "registry"), since what the registry does not say is
// then not so, and when it was made for another node. Origin names the last of
// the three that had to supply a label.
func MergeIdentity(own, registry, cache Identity) Identity {
	if registry.Origin == OriginRegistry || otherNode(own, cache) {
		cache = Identity{}
	}
	merged := Identity{Node: map[string]string{}, Devices: map[string]map[string]string{}, Origin: OriginNone}
	layers := []struct {
		id     Identity
		origin string
	}{{own, OriginConfig}, {registry, OriginRegistry}, {cache, OriginCache}}
	for _, l := range layers {
		added := fill(merged.Node, l.id.Node)
		for device, labels := range l.id.Devices {
			if merged.Devices[device] == nil {
				merged.Devices[device] = maps.Clone(labels)
				added = true
			} else if fill(merged.Devices[device], labels) {
				added = true
			}
		}
		if added {
			merged.Origin = l.origin
		}
	}
	return merged
}

func otherNode(own, cache Identity) bool {
	a, b := own.Node["node"], cache.Node["node"]
	return a != "" && b != "" && a != b
}

// fill adds the labels that dst lacks and reports whether there were any.
func fill(dst, src map[string]string) bool {
	added := false
	for name, value := range src {
		if _, ok := dst[name]; !ok {
			dst[name] = value
			added = true
		}
	}
	return added
}
