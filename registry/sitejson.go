// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"net/http"
	"reflect"

	"gopkg.in/yaml.v3"

	"github.com/rackpulse/rackpulse/site"
)

// siteJSON is a site with the keys of the site file, node ranges expanded. What
// is not declared is left out.
func siteJSON(s *site.Site) (map[string]any, error) {
	data, err := yaml.Marshal(s)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	if err := yaml.Unmarshal(data, &out); err != nil {
		return nil, err
	}
	stripped, _ := strip(out).(map[string]any)
	if stripped == nil {
		stripped = map[string]any{}
	}
	stripped["site"] = map[string]any{"id": s.ID}
	return stripped, nil
}

// strip takes out what is empty or zero: in a site that means "not declared".
func strip(v any) any {
	switch one := v.(type) {
	case map[string]any:
		for key, value := range one {
			if value = strip(value); value == nil {
				delete(one, key)
			} else {
				one[key] = value
			}
		}
		if len(one) == 0 {
			return nil
		}
	case []any:
		for i := range one {
			one[i] = strip(one[i])
		}
		if len(one) == 0 {
			return nil
		}
	default:
		if v == nil || reflect.ValueOf(v).IsZero() {
			return nil
		}
	}
	return v
}

func (r *Registry) serveSite(w http.ResponseWriter, req *http.Request) {
	out, err := siteJSON(r.site.Load())
	if err != nil {
		r.fail(w, req, err)
		return
	}
	writeJSON(w, http.StatusOK, out)
}
