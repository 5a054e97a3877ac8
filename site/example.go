// SPDX-License-Identifier: Apache-2.0

package site

import (
	_ "embed" // example.yml
	"fmt"
	"strings"
)

//go:embed example.yml
var exampleFile []byte

// Example returns the built-in example hall: four racks r01..r04 of four H100
// nodes each (gpu001..gpu016), two feeds, two cooling units, and a workstation
// ws01 outside racks.
func Example() (*Site, error) { return Parse("example.yml", exampleFile) }

// Hall returns a hall of racks x nodesPerRack nodes of gpus GPUs each, for
// benchmarks and tests of scale. It goes through Parse like any site file. Racks
// are named r001.., nodes gpu00001..; two feeds, 16 racks a row, one cooling
// unit for each 8 racks.
func Hall(racks, nodesPerRack, gpus int) (*Site, error) {
	return Parse("hall.yml", hallFile(racks, nodesPerRack, gpus))
}

// hallFile writes the site file of Hall.
func hallFile(racks, nodesPerRack, gpus int) []byte {
	const racksPerRow, racksPerUnit = 16, 8
	height := max(1, min(5, 99/max(nodesPerRack, 1)))
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	list := func(section string, n int, one func(i int)) {
		line("%s:", section)
		for i := range n {
			one(i)
		}
	}
	line("site: {id: hall}\nrooms: [{id: hall1}]")
	list("rows", (racks+racksPerRow-1)/racksPerRow, func(i int) { line("- {id: row%02d, room: hall1}", i+1) })
	line("feeds:\n- {id: feed-a, line_volts: 400, rated_amperes: 6300}\n- {id: feed-b, line_volts: 400, rated_amperes: 6300}")
	list("racks", racks, func(i int) {
		line("- {id: r%03d, row: row%02d, height_u: %d, power_limit_watts: 100000}",
			i+1, i/racksPerRow+1, nodesPerRack*height+1)
	})
	list("pdus", racks, func(i int) {
		for _, side := range []string{"a", "b"} {
			line("- {id: r%03d-%s, rack: r%03d, feed: feed-%s, phases: 3, rated_amperes: 125, outlets: %d}",
				i+1, side, i+1, side, nodesPerRack)
		}
	})
	list("cooling_units", (racks+racksPerUnit-1)/racksPerUnit, func(i int) {
		line(`- {id: crah%02d, room: hall1, serves: ["r[%03d-%03d]"]}`,
			i+1, i*racksPerUnit+1, min((i+1)*racksPerUnit, racks))
	})
	list("switches", racks, func(i int) {
		line("- {id: tor%03d, rack: r%03d, u: %d}", i+1, i+1, nodesPerRack*height+1)
	})
	list("sensors", racks, func(i int) {
		line("- {id: r%03d-in-top, rack: r%03d, measures: inlet_temperature, position: top}", i+1, i+1)
		line("- {id: r%03d-in-bot, rack: r%03d, measures: inlet_temperature, position: bottom}", i+1, i+1)
		line("- {id: r%03d-out, rack: r%03d, measures: outlet_temperature, position: top}", i+1, i+1)
	})
	line("node_classes: [{id: gpu, height_u: %d, gpus: %d, gpu_model: NVIDIA H100 80GB HBM3}]", height, gpus)
	list("nodes", racks, func(i int) {
		first := i * nodesPerRack
		line(`- {id: "gpu[%05d-%05d]", rack: r%03d, u: 1, class: gpu, outlets: ["r%03d-a/[1-%d]", "r%03d-b/[1-%d]"], ports: ["tor%03d/Ethernet[1-%d]"]}`,
			first+1, first+nodesPerRack, i+1, i+1, nodesPerRack, i+1, nodesPerRack, i+1, nodesPerRack)
	})
	return []byte(b.String())
}
