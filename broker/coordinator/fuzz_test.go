// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

// FuzzLoad loads what may be in a log that another release wrote, or that was damaged: a group of it does not panic, whatever it is told, and what it remembers is the same after
// it was stored again.
func FuzzLoad(f *testing.F) {
	g := New("g", Options{})
	g.Step(epoch, Topics{Topics: map[string]Topic{"t": {ID: TopicID{1}, Partitions: 4}}})
	g.Step(epoch, goodJoin())
	add := func() {
		for _, r := range g.Records() {
			data, err := json.Marshal(r)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data, data)
		}
	}
	add()
	g.Step(epoch, ConsumerHeartbeat{Client: Client{MemberID: "c", InstanceID: "i"}, RebalanceTimeout: time.Minute, Topics: []string{"t"}, Owned: []TopicPartitions{}})
	add()
	g.Step(epoch, Plan{Managed: true, UID: "u", Generation: 7, HandoffTimeout: time.Second})
	add()
	for _, member := range []string{`null`, `{}`, `{"classic":{}}`, `{"classic":{"protocolType":"consumer"},"reader":{"blocking":true}}`, `{"consumer":{"regex":"("}}`} {
		for _, kind := range []string{"Classic", "Consumer", "Managed", ""} {
			f.Add([]byte(`{"Kind":2,"MemberID":"m","Member":`+member+`}`), []byte(`{"Kind":1,"Group":{"type":"`+kind+`","state":"Stable","leader":"m"}}`))
		}
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		g := New("g", Options{})
		for _, data := range [][]byte{first, second} {
			var r Record
			if json.Unmarshal(data, &r) != nil {
				return
			}
			g.Load(r)
		}
		g.Step(epoch, Topics{Topics: map[string]Topic{"t": {ID: TopicID{1}, Partitions: 4}}})
		g.Step(epoch, Plan{})
		g.Describe()
		join := goodJoin()
		join.NewMemberID = "z"
		g.Step(epoch, join)
		g.Step(epoch, ConsumerHeartbeat{Client: Client{MemberID: "y"}, RebalanceTimeout: time.Minute, Topics: []string{"t"}, Owned: []TopicPartitions{}})
		for id := range g.members {
			g.Step(epoch, Heartbeat{Client: Client{MemberID: id}})
			g.Step(epoch, ConsumerHeartbeat{Client: Client{MemberID: id}, Epoch: 1})
		}
		again := New("g", Options{})
		for _, r := range g.Records() {
			data, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			var stored Record
			if err := json.Unmarshal(data, &stored); err != nil {
				t.Fatal(err)
			}
			again.Load(stored)
		}
		if want, got := g.Records(), again.Records(); len(want) != len(got) {
			t.Errorf("stored %v, loaded %v", want, got)
		}
		g.Step(epoch.Add(time.Hour), Tick{})
		again.Step(epoch, Tick{})
		if g.Generation() < again.Generation() && reflect.DeepEqual(g.Type(), again.Type()) {
			t.Errorf("generation %d, loaded %d", g.Generation(), again.Generation())
		}
	})
}
