package assigner
import ("testing";"time";"fmt")
func TestZZ(t *testing.T) {
	for _, sz := range [][3]int{{10000,1000,4000},{1000000,10000,60}} {
	in := benchInput(sz[0], sz[1], 1)
	best := time.Hour
	for range sz[2] { w := time.Now(); ConsistentHash{}.Assign(in); best = min(best, time.Since(w)) }
	fmt.Println(sz, best) }
}
