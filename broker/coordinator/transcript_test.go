// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the answers into the transcripts")

// TestTranscripts plays the conversations of testdata/groups. A line that is not indented further is what somebody says, with the time before it
// if it is another than in the line before; the lines after it that are indented by ten spaces are what the group answers, and are compared. Clients remember their
// member id and generation as real ones do:
//
//	0s  a joins range topics=orders     protocols and their metadata as NAME or NAME:METADATA; owned=orders:0-3 instance=I host=IP client=C
//	                                    session=D rebalance=D kip394 v8 id=MEMBER new=MEMBER type=T opaque (no subscription)
//	1s  a syncs plan=a:x,b:y            gen=N protocol=P; shares=a@orders:0-2|b@orders:3-5 is a plan of the consumer protocol
//	1s  a beats                         gen=N id=MEMBER
//	1s  a commits orders:0=5            gen=N id=MEMBER meta=N (bytes)
//	1s  a leaves, leave a b             instance=I alone=I
//	1s  a disconnects                   its connection has closed
//	1s  a says topics=orders            a ConsumerGroupHeartbeat (KIP-848): regex=R assignor=A rebalance=D instance=I host=IP client=C owned=orders:0-3 epoch=N id=MEMBER full;
//	                                    lost: the answer does not arrive. The first one joins, and a later one says nothing that it is not told to
//	1s  a acks                          the same, with all that it was told to read as owned
//	1s  a leaves, a goes                for good, or (goes) for a while, where it speaks KIP-848's protocol
//	1s  a fetches                       whether an OffsetFetch of a's is answered: epoch=N
//	1s  topics orders=6 payments=3/2    the topics that there are: partitions, and which topic of the name it is
//	1s  restart, restart compacted      the coordinator begins anew from its log; compacted it holds the last record of each key, tombstones first
//	1s  plan gen=1 handoff=30s web-0/uid@10.0.0.1=orders:0-3     a pod whose address ends in ! is not alive
//	1s  unplan, tick, describe, offsets, deadline, delete, delete-offsets orders:0, options delay=3s max=2 session=D retention=D interval=D (a new group)
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/groups/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := newTranscript(t).play(want)
			if *update {
				if err := os.WriteFile(file, got, 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("the group answers otherwise (-want +got), see -update:\n%s", diff)
			}
		})
	}
}

// talker is a client as it knows itself.
type talker struct {
	name, id   string
	generation int32
	joins      int
	last       Join
	protocol   string

	// consumer says that it speaks KIP-848's protocol, told what it was told to read last, and lost that it does not hear the next answer.
	consumer bool
	told     []TopicPartitions
	lost     bool
}

type asked struct {
	who  *talker
	what string
}

type transcript struct {
	t       *testing.T
	g       *Group
	start   time.Time
	now     time.Duration
	talkers map[string]*talker
	open    map[Token]asked
	token   Token
	stepped Token // the last one that was sent
	records []Record
	last    Output
	opts    Options
	topics  Topics
	plan    Plan
	out     bytes.Buffer
}

func newTranscript(t *testing.T) *transcript {
	return &transcript{
		t: t, g: New("g", Options{}), start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		talkers: map[string]*talker{}, open: map[Token]asked{},
	}
}

func (tr *transcript) play(in []byte) []byte {
	lines := bufio.NewScanner(bytes.NewReader(in))
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "          ") {
			continue
		}
		fmt.Fprintln(&tr.out, line)
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if d, err := time.ParseDuration(words[0]); err == nil {
			tr.now, words = d, words[1:]
		}
		tr.say(words)
	}
	replayed := New("g", Options{})
	for _, r := range tr.records {
		replayed.Load(r)
	}
	if diff := cmp.Diff(tr.g.Records(), replayed.Records()); diff != "" {
		tr.t.Errorf("the records give something else than the group remembers:\n%s", diff)
	}
	return tr.out.Bytes()
}

func (tr *transcript) printf(format string, args ...any) {
	fmt.Fprintf(&tr.out, "          "+format+"\n", args...)
}

// say plays one line.
func (tr *transcript) say(words []string) {
	args := parseArgs(words[1:])
	switch words[0] {
	case "plan":
		tr.plan = Plan{
			Managed: true, UID: args.named["uid"], Generation: args.int32("gen", 1), HandoffTimeout: args.duration("handoff", 30*time.Second), Members: args.pods,
		}
		tr.step(tr.plan)
	case "unplan":
		tr.plan = Plan{}
		tr.step(tr.plan)
	case "topics":
		tr.topics = parseTopics(args.named)
		tr.step(tr.topics)
	case "restart":
		tr.restart(slices.Contains(args.plain, "compacted"))
	case "tick":
		tr.step(Tick{})
	case "leave":
		in := Leave{Token: tr.ask(tr.talker("admin"), "leave")}
		for _, name := range args.plain {
			in.Members = append(in.Members, Client{MemberID: tr.talker(name).id})
		}
		if i := args.named["alone"]; i != "" {
			in.Members = append(in.Members, Client{InstanceID: i})
		}
		tr.step(in)
	case "delete":
		tr.step(Delete{Token: tr.ask(tr.talker("admin"), "delete")})
	case "delete-offsets":
		tr.step(DeleteOffsets{Token: tr.ask(tr.talker("admin"), "delete"), Partitions: parsePartitions(args.plain[0])})
	case "describe":
		tr.describe()
	case "offsets":
		for _, r := range tr.g.Offsets() {
			tr.printf("%s:%d = %d", r.Topic, r.Partition, r.Offset.Offset)
		}
	case "deadline":
		if tr.last.Deadline.IsZero() {
			tr.printf("never")
		} else {
			tr.printf("%s", tr.last.Deadline.Sub(tr.start))
		}
	case "options":
		tr.opts = Options{
			InitialRebalanceDelay: args.duration("delay", 0), MaxMembers: int(args.int32("max", 0)),
			ConsumerSessionTimeout: args.duration("session", 0), OffsetsRetention: args.duration("retention", 0),
			AssignmentInterval: args.duration("interval", 0),
		}
		tr.g, tr.records, tr.talkers = New("g", tr.opts), nil, map[string]*talker{}
	default:
		tr.speak(tr.talker(words[0]), words[1], parseArgs(words[2:]))
	}
}

// speak plays what a client says.
func (tr *transcript) speak(who *talker, verb string, args arguments) {
	c := Client{MemberID: who.id, InstanceID: who.last.Client.InstanceID, ClientID: who.last.Client.ClientID, Host: who.last.Client.Host}
	if id, ok := args.named["id"]; ok {
		c.MemberID = id
	}
	generation := args.int32("gen", who.generation)
	switch verb {
	case "joins":
		tr.step(tr.joinOf(who, args))
	case "syncs":
		in := Sync{Token: tr.ask(who, "sync"), Client: c, Generation: generation, Protocol: args.named["protocol"]}
		if shares := args.named["shares"]; shares != "" {
			in.Assignments, in.Shares = map[string][]byte{}, map[string][]TopicPartitions{}
			for part := range strings.SplitSeq(shares, "|") {
				name, share, _ := strings.Cut(part, "@")
				id := tr.talker(name).id
				in.Shares[id] = parsePartitions(share)
				in.Assignments[id] = []byte(cmpString(in.Shares[id]))
			}
		}
		if plan := args.named["plan"]; plan != "" {
			in.Assignments = map[string][]byte{}
			for part := range strings.SplitSeq(plan, ",") {
				name, data, _ := strings.Cut(part, ":")
				in.Assignments[tr.talker(name).id] = []byte(data)
			}
		}
		tr.step(in)
	case "beats":
		tr.step(Heartbeat{Token: tr.ask(who, "heartbeat"), Client: c, Generation: generation})
	case "says", "acks", "goes":
		tr.beat(who, verb, args)
	case "disconnects":
		tr.step(Disconnect{MemberID: c.MemberID})
	case "fetches":
		tr.printf("-> %s: fetch: %s", who.name, codeName(tr.g.CheckFetch(c.MemberID, args.int32("epoch", generation))))
	case "leaves":
		if who.consumer {
			tr.beat(who, verb, args)
			return
		}
		tr.step(Leave{Token: tr.ask(who, "leave"), Members: []Client{c}})
	case "commits":
		in := Commit{Token: tr.ask(who, "commit"), Client: c, Generation: generation}
		for _, w := range args.offsets {
			where, offset, _ := strings.Cut(w, "=")
			n, err := strconv.ParseInt(offset, 10, 64)
			if err != nil {
				tr.t.Fatalf("offset %q: %v", w, err)
			}
			for _, tp := range flatten(parsePartitions(where)) {
				in.Offsets = append(in.Offsets, OffsetCommit{
					Topic: tp.Topic, Partition: tp.Partition, Offset: n, Metadata: strings.Repeat("m", int(args.int32("meta", 0))),
				})
			}
		}
		tr.step(in)
	default:
		tr.t.Fatalf("%s %s: no such verb", who.name, verb)
	}
}

// joinOf is a client's JoinGroup; a later one repeats what it does not say anew.
func (tr *transcript) joinOf(who *talker, args arguments) Join {
	in := who.last
	if in.NewMemberID == "" {
		in = Join{SessionTimeout: 10 * time.Second, RebalanceTimeout: time.Minute, ProtocolType: "consumer", Subscription: &Subscription{Topics: []string{"orders"}}}
		in.Client.ClientID, in.Client.Host = who.name, "10.0.0.99"
	}
	who.joins++
	in.Token = tr.ask(who, "join")
	in.NewMemberID = fmt.Sprintf("%s-%d", who.name, who.joins)
	in.SkipsAssignment = !slices.Contains(args.plain, "v8")
	if id := args.named["new"]; id != "" {
		in.NewMemberID = id
	}
	in.Client.MemberID = who.id
	if id, ok := args.named["id"]; ok {
		in.Client.MemberID = id
	}
	sub := Subscription{}
	if in.Subscription != nil {
		sub = *in.Subscription
	}
	sub.Owned = parsePartitions(args.named["owned"])
	for name, value := range args.named {
		switch name {
		case "instance":
			in.Client.InstanceID = value
		case "host":
			in.Client.Host = value
		case "client":
			in.Client.ClientID = value
		case "topics":
			sub.Topics = strings.Split(value, ",")
		case "type":
			in.ProtocolType = value
		}
	}
	in.SessionTimeout = args.duration("session", in.SessionTimeout)
	in.RebalanceTimeout = args.duration("rebalance", in.RebalanceTimeout)
	in.Subscription = &sub
	var protocols []Protocol
	for _, p := range args.plain {
		switch p {
		case "kip394":
			in.RequireMemberID = true
		case "opaque":
			in.Subscription = nil
		case "v8":
		default:
			name, metadata, _ := strings.Cut(p, ":")
			protocols = append(protocols, Protocol{Name: name, Metadata: []byte(metadata)})
		}
	}
	if len(protocols) > 0 || len(in.Protocols) == 0 {
		in.Protocols = protocols
	}
	who.last = in
	return in
}

func (tr *transcript) talker(name string) *talker {
	if tr.talkers[name] == nil {
		tr.talkers[name] = &talker{name: name, generation: -1}
	}
	return tr.talkers[name]
}

func (tr *transcript) ask(who *talker, what string) Token {
	tr.token++
	tr.open[tr.token] = asked{who, what}
	return tr.token
}

// step hands an input to the group and prints what it answers.
func (tr *transcript) step(in Input) {
	tr.t.Helper()
	out := tr.g.Step(tr.start.Add(tr.now), in)
	tr.last = out
	tr.records = append(tr.records, out.Records...)
	for _, n := range out.Notes {
		tr.printf("note: %s", strings.TrimPrefix(n, `group "g": `))
	}
	for _, r := range out.Replies {
		q, ok := tr.open[r.Token]
		if !ok {
			tr.t.Fatalf("token %d is answered that is not open", r.Token)
		}
		delete(tr.open, r.Token)
		tr.printf("-> %s: %s: %s", q.who.name, q.what, tr.render(q.who, r))
	}
	if _, waits := tr.open[tr.token]; waits && tr.token != tr.stepped {
		tr.printf("waits")
	}
	tr.stepped = tr.token
	if !out.Deadline.IsZero() && !out.Deadline.After(tr.start.Add(tr.now)) {
		tr.t.Errorf("at %s the deadline is %s", tr.now, out.Deadline.Sub(tr.start))
	}
}

// render prints a reply and lets the client take note of it.
func (tr *transcript) render(who *talker, r Reply) string {
	s := codeName(r.Err)
	switch body := r.Body.(type) {
	case JoinReply:
		return s + tr.renderJoin(who, r.Err, body)
	case SyncReply:
		if r.Err == ErrNone && body.Shared {
			s += " reads " + cmpString(body.Share)
		} else if r.Err == ErrNone {
			s += fmt.Sprintf(" assignment %q", body.Assignment)
		}
	case LeaveReply:
		s += codeNames(body.Errs)
	case CommitReply:
		s += codeNames(body.Errs)
	case DeleteOffsetsReply:
		s += codeNames(body.Errs)
	case ConsumerHeartbeatReply:
		return s + tr.renderBeat(who, r.Err, body)
	}
	if r.Err == ErrUnknownMemberID {
		who.id, who.generation = "", -1
	}
	return s
}

func (tr *transcript) renderJoin(who *talker, code int16, body JoinReply) string {
	switch code {
	case ErrMemberIDRequired:
		who.id = body.MemberID
		return " " + body.MemberID
	case ErrUnknownMemberID, ErrFencedInstanceID:
		who.id, who.generation = "", -1
		return ""
	case ErrNone:
	default:
		return ""
	}
	who.id, who.generation, who.protocol = body.MemberID, body.Generation, body.Protocol
	s := fmt.Sprintf(" %s generation %d, %s, leader %s", body.MemberID, body.Generation, body.Protocol, body.Leader)
	if body.SkipAssignment {
		s += ", no plan needed"
	}
	for _, m := range body.Members {
		s += " [" + m.MemberID
		if m.InstanceID != "" {
			s += "=" + m.InstanceID
		}
		if len(m.Metadata) > 0 {
			s += ":" + string(m.Metadata)
		}
		s += "]"
	}
	return s
}

func (tr *transcript) describe() {
	d := tr.g.Describe()
	if d.Type == TypeConsumer {
		tr.describeConsumer(d)
		return
	}
	tr.printf("%s, generation %d, type %q, protocol %q, leader %q, managed %t", d.State, d.Generation, d.ProtocolType, d.Protocol, d.Leader, d.Type == TypeManaged)
	for _, m := range d.Members {
		s := fmt.Sprintf("%s at %s", m.MemberID, m.Host)
		if m.InstanceID != "" {
			s += " instance " + m.InstanceID
		}
		if m.Pod != "" {
			s += " pod " + m.Pod
		}
		if d.Type == TypeManaged {
			s += " reads " + cmpString(m.Share)
		} else {
			s += fmt.Sprintf(" assignment %q", m.Assignment)
			if m.Shared {
				s += " reads " + cmpString(m.Share)
			}
		}
		tr.printf("%s", s)
	}
}
