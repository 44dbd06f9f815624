// SPDX-License-Identifier: Apache-2.0

package assigner

// numberZones numbers the zones of members and of partitions' leaders, if any partition has its leader in a member's zone.
func (p *problem) numberZones(members []Member, zones map[string][]string) {
	if len(zones) == 0 {
		return
	}
	number := make(map[string]int32)
	p.memberZone = make([]int32, len(members))
	for m := range members {
		p.memberZone[m] = none
		if zone := members[m].Zone; zone != "" {
			z, ok := number[zone]
			if !ok {
				z = int32(len(number))
				number[zone] = z
			}
			p.memberZone[m] = z
		}
	}
	matter := false
	leaders := make([]int32, len(p.owner))
	for t, topic := range p.topics {
		of := zones[topic]
		for g := p.start[t]; g < p.start[t+1]; g++ {
			leaders[g] = none
			if i := g - p.start[t]; i < len(of) {
				if z, ok := number[of[i]]; ok {
					leaders[g], matter = z, true
				}
			}
		}
	}
	if matter {
		p.zones, p.zoneCount = leaders, len(number)
	}
}

// zone returns the zone of a partition's leader, or none.
func (p *problem) zone(g int) int32 {
	if p.zones == nil {
		return none
	}
	return p.zones[g]
}
