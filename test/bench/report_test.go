// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// found is a report of a few made-up samples.
func found() *report {
	produced := func(peer string, round int, mb int64) *sample {
		return &sample{Work: baseWork, Peer: peer, Round: round, Seconds: 1, Records: mb, Bytes: mb * 1e6, ServerCPU: 1, P99: 3}
	}
	return &report{
		section: sections[0],
		Works:   allWorks(),
		Samples: []*sample{
			produced(ringmasterFlush, 0, 100), produced(ringmasterFlush, 1, 300), produced(ringmasterFlush, 2, 200),
			produced(kafkaFlush, 0, 100), produced(diskFlush, 0, 400),
			{Work: baseWork, Peer: kafkaOS, Round: 1, Error: "it is ill\nand more"},
			{Work: startWork, Peer: ringmasterOS, FirstMs: 20, IdleBytes: 50e6},
		},
	}
}

func TestTargetsAreRatiosOfMedians(t *testing.T) {
	want := map[string]string{
		"durable produce, of the raw disk":                   "short of it by 44 %",
		"durable produce, of Kafka with a flush per request": "PASS",
		"CPU seconds per GB of durable produce, of Kafka's":  "PASS",
		"idle memory":           "over it by 25 %",
		"start to first answer": "PASS",
	}
	all := results(found().Samples)
	for i := range all {
		if got := all[i].verdict(); got != want[all[i].what] {
			t.Errorf("%s: %s, want %s", all[i].what, got, want[all[i].what])
		}
	}
	if len(all) != len(want) {
		t.Errorf("%d results, want %d: those without samples are left out", len(all), len(want))
	}
}

func TestTheReportSaysWhatWasNotMeasured(t *testing.T) {
	text := string(found().markdown())
	for _, want := range []string{
		"3 of 5 are met", "| ringmaster-flush | 200 | 100–300 |", baseWork + ", kafka-os, round 2: it is ill\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

func TestTheReportReplacesTheOneBefore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "doc.md")
	if err := os.WriteFile(path, []byte("before\n"+sections[0].begin+"\nold\n"+sections[0].end+"\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := found().write(path); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(got)
	if strings.Contains(text, "old") || strings.Count(text, "## Targets") != 1 || !strings.HasPrefix(text, "before\n") || !strings.HasSuffix(text, "\nafter\n") {
		t.Errorf("got:\n%s", text)
	}
	if err := os.WriteFile(path, []byte("no marks"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := found().write(path); err == nil {
		t.Error("a document without the marked lines was written to")
	}
}

func TestEveryTargetNamesAWorkAndItsPeers(t *testing.T) {
	peers := make(map[string]map[string]bool)
	for _, w := range allWorks() {
		if peers[w.Name] != nil {
			t.Errorf("two works are called %q", w.Name)
		}
		peers[w.Name] = make(map[string]bool)
		for _, p := range w.Peers {
			peers[w.Name][p] = true
		}
	}
	for _, target := range allTargets() {
		if !peers[target.work][target.peer] || target.of != "" && !peers[target.work][target.of] {
			t.Errorf("%s: %q is not done with %s and %s", target.what, target.work, target.peer, target.of)
		}
	}
	if !peers[rateWork][kafkaFlush] {
		t.Errorf("nothing gives the rate of %q", halfOfKafka)
	}
}
