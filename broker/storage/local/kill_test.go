// SPDX-License-Identifier: Apache-2.0

package local

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/ringmaster-dev/ringmaster/broker/storage"
	"github.com/ringmaster-dev/ringmaster/broker/storage/enginetest"
	"github.com/ringmaster-dev/ringmaster/broker/storage/internal/recordbatch"
)

func TestAProcessThatIsKilledLosesNothingItAcknowledged(t *testing.T) {
	if dir := os.Getenv("RINGMASTER_TEST_APPEND"); dir != "" {
		appendForEver(t, dir)
		return
	}
	dir := t.TempDir()
	acked := map[int64]string{}
	for round := range 4 {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "RINGMASTER_TEST_APPEND="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			offset, value, ok := strings.Cut(lines.Text(), " ")
			o, err := strconv.ParseInt(offset, 10, 64)
			if !ok || err != nil {
				t.Fatalf("child: %s", lines.Text())
			}
			acked[o] = value
			if n == 60+round*25 {
				_ = cmd.Process.Kill()
			}
		}
		_ = cmd.Wait()
	}
	e := openEngine(t, dir, Options{SegmentBytes: 20_000})
	l := openLog(t, e, p0)
	if len(acked) < 240 {
		t.Fatalf("only %d records acknowledged", len(acked))
	}
	for o, value := range acked {
		b, err := enginetest.Read(context.Background(), l, o, 1)
		if err != nil || !bytes.Contains(b, []byte(value)) {
			t.Fatalf("offset %d: %v", o, err)
		}
	}
	for o := int64(0); o < l.HighWatermark(); {
		b, err := enginetest.Read(context.Background(), l, o, 1)
		if err != nil {
			t.Fatal(err)
		}
		h, _ := recordbatch.ParseHeader(b)
		if h.Base != o {
			t.Fatalf("offset %d where %d was to follow", h.Base, o)
		}
		o = h.Next()
	}
}

// appendForEver is the child: it appends from several goroutines and prints what was acknowledged.
func appendForEver(t *testing.T, dir string) {
	e := openEngine(t, dir, Options{SegmentBytes: 20_000})
	l := openLog(t, e, p0)
	for range 4 {
		go func() {
			for {
				value := fmt.Sprintf("value-%d-%s", rand.Uint64(), strings.Repeat("x", rand.IntN(800)))
				base, err := l.Append(context.Background(), simple(value), storage.Synced)
				if err != nil {
					panic(err)
				}
				fmt.Printf("%d %s\n", base, value)
			}
		}()
	}
	select {}
}
