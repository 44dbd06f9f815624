// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"fmt"
	"maps"
	"slices"
)

// apiPod is a pod as the API server has it: the word of its node's kubelet, or, where that is not heard of, of the node controller.
type apiPod struct {
	uid, ip, workload          string
	node                       int
	ready, terminating, failed bool
	restarts                   int32
}

// worldPod is a pod as it really is.
type worldPod struct {
	apiPod

	name, address string
	revision      int
	// clients are the consumers that run in it; none does unless it is up.
	clients []*simClient
	up      bool
	// static says that its clients have instance ids, begun that its containers ran before.
	static, begun bool
}

// makePod creates a pod; it begins to run some time.
func (w *world) makePod(name, workload string, revision int) {
	w.made++
	p := &worldPod{
		apiPod: apiPod{uid: fmt.Sprintf("uid-%d", w.made), workload: workload, node: w.rng.IntN(len(w.nodes))}, name: name, revision: revision,
		static: workload == "StatefulSet/db" && w.rng.IntN(2) == 0,
	}
	w.running[name] = p
	w.publish(name, &p.apiPod)
}

// publish lets the API server have a pod; nil removes it.
func (w *world) publish(name string, p *apiPod) {
	last := w.pods.last()
	was, known := last[name]
	if (p == nil) == !known && (p == nil || was == *p) {
		return
	}
	next := maps.Clone(last)
	if next == nil {
		next = map[string]apiPod{}
	}
	delete(next, name)
	if p != nil {
		next[name] = *p
	}
	w.pods.add(next)
}

// runPod lets something happen to a pod.
func (w *world) runPod() {
	w.disconnect(1)
	names := w.podNames()
	if len(names) == 0 {
		return
	}
	p := w.running[names[w.rng.IntN(len(names))]]
	if w.nodes[p.node] {
		p.apart(w)
		return
	}
	switch n := w.rng.IntN(100); {
	case p.terminating && n < 60:
		p.stop(w, w.rng.IntN(2) == 0)
		w.remove(p)
	case n < 40:
		w.publish(p.name, &p.apiPod)
	case n < 60 && !p.up:
		p.start(w)
	case n < 78 && p.up:
		p.ready = true
	case n < 83:
		p.stop(w, false)
	case n < 86:
		p.ready = !p.ready && p.up
	case n < 91 && p.up && p.ready: // between two looks of the kubelet's
		p.stop(w, false)
		p.start(w)
		p.ready = true
	case n < 93 && p.up: // its sandbox is made anew
		p.stop(w, false)
		p.ip, p.address = "", ""
	case n < 95:
		w.deletePod(p)
	case n < 96:
		p.stop(w, false)
		p.failed = true
	}
}

// apart is what happens to a pod of a node that is cut off: it runs on, and the control plane speaks for it.
func (p *worldPod) apart(w *world) {
	api, known := w.pods.last()[p.name]
	switch w.rng.IntN(8) {
	case 0, 1:
		if known {
			api.ready = false
			w.publish(p.name, &api)
		}
	case 2:
		w.deletePod(p)
	case 3:
		if p.terminating { // by force, though it may run on
			w.ghosts = append(w.ghosts, p)
			w.remove(p)
		}
	}
}

// deletePod asks for the end of a pod.
func (w *world) deletePod(p *worldPod) {
	p.terminating = true
	api := w.pods.last()[p.name]
	api.terminating = true
	w.publish(p.name, &api)
}

// remove takes a pod out of the API.
func (w *world) remove(p *worldPod) {
	delete(w.running, p.name)
	w.publish(p.name, nil)
}

// start starts a pod's containers.
func (p *worldPod) start(w *world) {
	if p.failed || p.terminating || p.up {
		return
	}
	if p.address == "" {
		p.address = w.freeAddress()
		if p.ip = p.address; w.rng.IntN(12) == 0 {
			p.ip, p.address = "", fmt.Sprintf("10.0.9.%d", p.node) // the host's network
		}
	}
	if p.begun {
		p.restarts++
	}
	p.up, p.begun = true, true
	for i := range 1 + w.rng.IntN(5)/4 {
		p.clients = append(p.clients, w.newClient(p, i))
	}
	w.s.clients = append(w.s.clients, p.clients...)
}

// newClient makes a consumer that runs in a pod.
func (w *world) newClient(p *worldPod, i int) *simClient {
	w.made++
	c := w.s.newClient(w.made)
	client, topics := &c.beat.Client, &c.beat.Topics
	if !c.consumer {
		client, topics = &c.template.Client, &c.template.Subscription.Topics
	}
	client.Host, client.InstanceID, client.ClientID = p.address, "", "consumer"
	if p.ip == "" || w.rng.IntN(4) == 0 {
		client.ClientID = p.name
	}
	if p.static {
		client.InstanceID = fmt.Sprintf("%s-%d", p.name, i)
	}
	if w.rng.IntN(6) > 0 {
		*topics = []string{"orders", "payments"}
	}
	if c.consumer {
		w.s.newID(c)
	}
	w.places[c] = p
	return c
}

// freeAddress is an address that no pod has; one may have had it a moment ago.
func (w *world) freeAddress() string {
	taken := map[string]bool{}
	for _, p := range w.running {
		taken[p.address] = true
	}
	for _, p := range w.ghosts {
		taken[p.address] = true
	}
	for i := w.rng.IntN(3); ; i++ {
		if ip := fmt.Sprintf("10.0.1.%d", i); !taken[ip] {
			return ip
		}
	}
}

// stop ends what runs in a pod: by a signal, upon which consumers may leave, or at once. Of their connections the broker hears some time, or never.
func (p *worldPod) stop(w *world, politely bool) {
	p.up, p.ready = false, false
	ended := p.clients
	p.clients = nil
	for _, c := range ended {
		if politely && !w.nodes[p.node] {
			w.s.leave(c)
		} else if w.rng.IntN(4) > 0 {
			w.closing = append(w.closing, c.id)
		}
		c.reading = nil
		w.s.deafen(c)
		w.s.clients = slices.DeleteFunc(w.s.clients, func(other *simClient) bool { return other == c })
		delete(w.places, c)
	}
}

// disconnect lets the coordinator hear of up to some connections that have closed.
func (w *world) disconnect(n int) {
	for ; n > 0 && len(w.closing) > 0; n-- {
		id := w.closing[0]
		w.closing = w.closing[1:]
		w.s.step(Disconnect{MemberID: id})
	}
}

// silent says whether a client cannot be heard of.
func (w *world) silent(c *simClient) bool { return w.nodes[w.places[c].node] }

// cutNode cuts a node off, or lets it come back, upon which pods end that were removed meanwhile.
func (w *world) cutNode() {
	i := w.rng.IntN(len(w.nodes))
	if w.nodes[i] = !w.nodes[i]; w.nodes[i] {
		for c, p := range w.places {
			if p.node == i {
				w.s.deafen(c)
			}
		}
		return
	}
	w.endGhosts()
}

// endGhosts ends the pods that ran on though they were removed, on the nodes that are back.
func (w *world) endGhosts() {
	var left []*worldPod
	for _, p := range w.ghosts {
		if w.nodes[p.node] {
			left = append(left, p)
			continue
		}
		p.stop(w, false)
	}
	w.ghosts = left
}

// settle brings a pod to where it is to be, when all is well.
func (p *worldPod) settle(w *world) {
	switch {
	case p.terminating || p.failed:
		p.stop(w, !p.failed)
		w.remove(p)
		return
	case !p.up:
		p.start(w)
	default:
		p.ready = true
	}
	w.publish(p.name, &p.apiPod)
}
