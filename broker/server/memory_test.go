// SPDX-License-Identifier: Apache-2.0

package server

import (
	"reflect"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestMemoryIsBounded(t *testing.T) {
	m := newMemory(100)
	if !m.take(500, time.Nanosecond, nil) {
		t.Fatal("where nothing is used, a single large request must get what it needs")
	}
	if m.take(1, time.Nanosecond, nil) {
		t.Error("more than the limit is taken")
	}
	if got := m.takeUpTo(10); got != 0 {
		t.Errorf("%d bytes are taken beyond the limit", got)
	}
	m.give(450)
	if got := m.takeUpTo(80); got != 50 {
		t.Errorf("%d bytes are taken, want the 50 that are left", got)
	}
	stop := make(chan struct{})
	close(stop)
	if m.take(1, time.Hour, stop) {
		t.Error("memory is taken that is not there")
	}
	taken := make(chan bool, 1)
	go func() { taken <- m.take(60, deadlineOfTest, nil) }()
	m.give(100)
	if !<-taken {
		t.Error("who waits does not get what is given back")
	}
	if got := m.inUse(); got != 60 {
		t.Errorf("%d bytes are in use, want 60", got)
	}
}

const deadlineOfTest = 30 * time.Second

// filled sets every array of a request to n elements, nested ones too, and returns how many elements that makes.
func filled(v reflect.Value, n int) int {
	total := 0
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			total = filled(v.Elem(), n)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				total += filled(v.Field(i), n)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return 0
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		total = n
		for i := range n {
			total += filled(v.Index(i), n)
		}
	}
	return total
}

// TestRequestsOfTooManyElementsAreRefused is for every version of every API: what is decoded stays small however many elements a client packs
// into the bytes that its request may have.
func TestRequestsOfTooManyElementsAreRefused(t *testing.T) {
	s := &Server{}
	for _, a := range apiTable() {
		for version := a.min; version <= a.max; version++ {
			for _, n := range []int{20, maxElements + 1} {
				if n > maxElements && version != a.min && version != a.max {
					continue // it takes its time
				}
				req := kmsg.RequestForKey(a.key)
				req.SetVersion(version)
				v := reflect.ValueOf(req).Elem()
				arrays := false
				for i := range v.NumField() {
					f := v.Field(i)
					if f.Kind() != reflect.Slice || f.Type().Elem().Kind() == reflect.Uint8 {
						continue
					}
					arrays = true
					f.Set(reflect.MakeSlice(f.Type(), n, n))
					if n == 20 {
						filled(f.Slice(0, 1).Index(0), n)
					}
				}
				if !arrays {
					continue
				}
				body := req.AppendTo(nil)
				if req.IsFlexible() {
					body = append([]byte{0}, body...)
				}
				_, elements, err := s.decodeBody(header{key: a.key, version: version}, body)
				switch {
				case n == 20 && err != nil:
					t.Errorf("%s v%d with %d bytes: %v", kmsg.NameForKey(a.key), version, len(body), err)
				case n > maxElements && len(body) > n && err == nil:
					t.Errorf("%s v%d with %d bytes is taken, with %d elements", kmsg.NameForKey(a.key), version, len(body), elements)
				}
			}
		}
	}
}

func TestTheElementsOfAProduceAreCountedAsTheyAreDecoded(t *testing.T) {
	name := "transactional"
	for version := range int16(14) {
		for title, id := range map[string]*string{"without a transactional id": nil, "with one": &name} {
			req := kmsg.NewPtrProduceRequest()
			req.Version, req.TransactionID = version, id
			for topic := range 3 {
				rt := kmsg.NewProduceRequestTopic()
				rt.Topic = "topic"
				for partition := range topic + 1 {
					p := kmsg.NewProduceRequestTopicPartition()
					p.Partition, p.Records = int32(partition), make([]byte, 300*partition)
					rt.Partitions = append(rt.Partitions, p)
				}
				req.Topics = append(req.Topics, rt)
			}
			body := req.AppendTo(nil)
			if req.IsFlexible() {
				body = append([]byte{0}, body...)
			}
			if n, err := produceElements(version, body); err != nil || n != 9 {
				t.Errorf("v%d %s: %d elements and %v, want 9", version, title, n, err)
			}
			for cut := range body {
				if _, err := produceElements(version, body[:cut]); err == nil && version < 9 {
					t.Errorf("v%d %s: %d of %d bytes are taken for a whole request", version, title, cut, len(body))
				}
			}
		}
	}
}

func TestAStormOfConnectionsIsNoStormOfLines(t *testing.T) {
	var l lineLimit
	now := time.Unix(1000, 0)
	lines := 0
	for range 1000 {
		if ok, _ := l.allow(now); ok {
			lines++
		}
	}
	if lines != lineBurst {
		t.Errorf("%d lines, want %d", lines, lineBurst)
	}
	if ok, left := l.allow(now.Add(reportEvery)); !ok || left != 1000-lineBurst {
		t.Errorf("later: %t, with %d left out, want %d", ok, left, 1000-lineBurst)
	}
}
