// SPDX-License-Identifier: Apache-2.0

package dashboards

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"

	"gopkg.in/yaml.v3"
)

// ExportConfig says how the dashboards are written out. The zero value leaves
// them as they are.
type ExportConfig struct {
	// Datasource is the uid of the Grafana data source that they start with.
	Datasource string
	// Address is where people's browsers reach RackPulse's own pages.
	Address string
	// Folder is Grafana's folder for them; empty: RackPulse.
	Folder string
	// Path is where Grafana finds the files; it stands in the provisioning file.
	Path string
}

// Export returns the files to write: NAME.json under dashboards/, and
// provisioning/dashboards/rackpulse.yml, which has Grafana load them.
func Export(cfg ExportConfig) (map[string][]byte, error) {
	names, err := fs.Glob(files, "*.json")
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for _, name := range names {
		data, err := files.ReadFile(name)
		if err == nil {
			data, err = preset(data, cfg)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out["dashboards/"+name] = data
	}
	out["provisioning/dashboards/rackpulse.yml"], err = provisioning(cfg)
	return out, err
}

// provisioning is the file by which Grafana loads a folder of dashboards.
func provisioning(cfg ExportConfig) ([]byte, error) {
	if cfg.Folder == "" {
		cfg.Folder = "RackPulse"
	}
	type options struct {
		Path string `yaml:"path"`
	}
	type provider struct {
		Name    string  `yaml:"name"`
		Folder  string  `yaml:"folder"`
		Type    string  `yaml:"type"`
		Options options `yaml:"options"`
	}
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	err := enc.Encode(struct {
		APIVersion int        `yaml:"apiVersion"`
		Providers  []provider `yaml:"providers"`
	}{1, []provider{{"rackpulse", cfg.Folder, "file", options{cfg.Path}}}})
	return b.Bytes(), err
}

// preset sets the values that the variables datasource and rackpulse start with.
func preset(data []byte, cfg ExportConfig) ([]byte, error) {
	if cfg.Datasource == "" && cfg.Address == "" {
		return data, nil
	}
	var board map[string]any
	if err := json.Unmarshal(data, &board); err != nil {
		return nil, err
	}
	templating, _ := board["templating"].(map[string]any)
	list, _ := templating["list"].([]any)
	for _, v := range list {
		variable, _ := v.(map[string]any)
		switch variable["name"] {
		case "datasource":
			if cfg.Datasource != "" {
				variable["current"] = map[string]any{"text": cfg.Datasource, "value": cfg.Datasource}
			}
		case "rackpulse":
			if cfg.Address != "" {
				variable["query"] = cfg.Address
				variable["current"] = map[string]any{"text": cfg.Address, "value": cfg.Address}
			}
		}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	err := enc.Encode(board)
	return b.Bytes(), err
}
