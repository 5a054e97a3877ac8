// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rackpulse/rackpulse/site"
)

// Fields that are read for the facts, whatever is on the page.
const (
	fieldMIGMode     = "DCGM_FI_DEV_MIG_MODE"
	fieldECCMode     = "DCGM_FI_DEV_ECC_CURRENT"
	fieldPersistence = "DCGM_FI_DEV_PERSISTENCE_MODE"
	labelVBIOS       = "DCGM_FI_DEV_VBIOS_VERSION"
	// labelCUDA is 1000 times the major and 10 times the minor number of the newest
	// CUDA that the driver serves (nvml.h, cuda.h).
	labelCUDA = "DCGM_FI_CUDA_DRIVER_VERSION"
)

// factLabels are the label fields of the facts.
var factLabels = []string{labelVBIOS, labelCUDA}

// Facts returns what the passes so far told of driver, GPUs and their modes; what is
// not known (yet) is empty. It never waits.
func (r *Runner) Facts() site.Facts { return *r.facts.Load() }

// learn takes the facts of a pass that read all fields. What it does not tell stays
// as it was.
func (r *Runner) learn(s *Sample) {
	if s.FastOnly || len(s.Devices) == 0 {
		return
	}
	next := factsOf(s).Or(r.Facts())
	r.facts.Store(&next)
}

func factsOf(s *Sample) site.Facts {
	models, bioses, cudas, uuids := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	modes := map[string]map[string]bool{fieldMIGMode: {}, fieldECCMode: {}, fieldPersistence: {}}
	for i := range s.Devices {
		d := &s.Devices[i]
		models[d.Model], uuids[d.UUID] = true, true
		bioses[d.Labels[labelVBIOS]], cudas[cudaVersion(d.Labels[labelCUDA])] = true, true
		for field, seen := range modes {
			if v := d.value(field); v != nil && !d.Lost {
				seen[onOff(v.V)] = true
			}
		}
		if d.MIGProfile != "" {
			modes[fieldMIGMode] = map[string]bool{site.On: true}
		}
	}
	delete(uuids, "")
	return site.Facts{Driver: s.Driver, CUDA: joined(cudas), VBIOS: joined(bioses), GPUModel: joined(models), GPUCount: len(uuids),
		MIGMode: mode(modes[fieldMIGMode]), ECCMode: mode(modes[fieldECCMode]), Persistence: mode(modes[fieldPersistence])}
}

// joined lists what there is, in order.
func joined(texts map[string]bool) string {
	delete(texts, "")
	return strings.Join(slices.Sorted(maps.Keys(texts)), ", ")
}

// mode is that of all GPUs.
func mode(seen map[string]bool) string {
	if len(seen) > 1 {
		return site.Mixed
	}
	return joined(seen)
}

func onOff(v float64) string {
	if v == 0 {
		return site.Off
	}
	return site.On
}

// cudaVersion makes 12.4 of 12040; "" of anything else.
func cudaVersion(number string) string {
	n, err := strconv.Atoi(number)
	if err != nil || n < 1000 {
		return ""
	}
	return fmt.Sprintf("%d.%d", n/1000, n%1000/10)
}
