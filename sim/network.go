// SPDX-License-Identifier: Apache-2.0

package sim

// Ports: 400 Gb/s for GPU nodes, 25 Gb/s for others; traffic follows the
// utilisation (assumed: 2 % idle, 35 % more at full load).
const (
	gpuPort, cpuPort     = 400e9 / 8, 25e9 / 8 // bytes per second
	idleTraffic, traffic = .02, .35
)

type netSwitch struct {
	id, rack  string
	unmanaged bool // control
	ports     []*port
}

type port struct {
	name   string
	node   *node
	stream uint64

	down   bool    // control
	errors float64 // control: errors per wall second, each way

	up                         bool
	speed                      float64
	flaps                      float64
	rx, tx, rxErrors, txErrors float64
}

func (s *netSwitch) plug(name string, nd *node) *port {
	p := &port{name: name, node: nd, speed: cpuPort, stream: mix(nd.stream + uint64(len(s.ports)))}
	if len(nd.gpus) > 0 {
		p.speed = gpuPort
	}
	s.ports = append(s.ports, p)
	return p
}

// stepNetwork moves bytes; a port is up while its node is.
func (h *Hall) stepNetwork(n int64, dt float64) {
	for _, s := range h.switches {
		for _, p := range s.ports {
			if p.up = p.node.up && !p.down; !p.up {
				continue
			}
			bytes := p.speed * (idleTraffic + traffic*p.node.util) * dt
			// What a node sends and receives differs by a few percent.
			p.rx += bytes * max(0, 1+.05*noise(p.stream, n))
			p.tx += bytes * max(0, 1+.05*noise(p.stream+1, n))
			p.rxErrors += p.errors * dt
			p.txErrors += p.errors * dt
		}
	}
}
