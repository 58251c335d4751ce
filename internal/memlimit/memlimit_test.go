package memlimit

import (
	"testing"
	"testing/fstest"
)

func TestFind(t *testing.T) {
	const mib = 1 << 20
	files := func(pairs ...string) fstest.MapFS {
		out := fstest.MapFS{}
		for i := 0; i < len(pairs); i += 2 {
			out[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
		}
		return out
	}
	for _, c := range []struct {
		name    string
		env     string
		request Request
		root    fstest.MapFS
		want    Limit
		fails   bool
	}{
		{name: "nothing at all", root: files(), want: Limit{Source: None}},
		{name: "the variable wins", env: "1GiB", request: Request{Configured: 400 * mib},
			root: files("proc/self/cgroup", "0::/a\n", "sys/fs/cgroup/a/memory.max", "1048576000\n"), want: Limit{Source: Environment}},
		{name: "the configuration comes before the groups", request: Request{Configured: 1000 * mib, OffHeap: 320 * mib},
			root: files("proc/self/cgroup", "0::/\n", "sys/fs/cgroup/memory.max", "104857600\n"), want: Limit{Configured, 1000 * mib, 580 * mib}},
		{name: "v2 in a container", root: files("proc/self/cgroup", "0::/\n", "sys/fs/cgroup/memory.max", "524288000\n"),
			want: Limit{CgroupV2, 500 * mib, 450 * mib}},
		{name: "v2, the least of all above counts",
			root: files("proc/self/cgroup", "0::/system.slice/perdure.service\n", "sys/fs/cgroup/system.slice/perdure.service/memory.max", "max\n",
				"sys/fs/cgroup/system.slice/memory.max", "524288000\n", "sys/fs/cgroup/memory.max", "1048576000\n"),
			want: Limit{CgroupV2, 500 * mib, 450 * mib}},
		{name: "v2, the least of all above is not the nearest",
			root: files("proc/self/cgroup", "0::/system.slice/perdure.service\n", "sys/fs/cgroup/system.slice/perdure.service/memory.max", "1048576000\n",
				"sys/fs/cgroup/system.slice/memory.max", "524288000\n", "sys/fs/cgroup/memory.max", "2097152000\n"),
			want: Limit{CgroupV2, 500 * mib, 450 * mib}},
		{name: "v2 without a limit", root: files("proc/self/cgroup", "0::/a\n", "sys/fs/cgroup/a/memory.max", "max\n"), want: Limit{Source: None}},
		{name: "v1", root: files("proc/self/cgroup", "12:cpu,cpuacct:/x\n7:memory:/docker/abc\n0::/x\n",
			"sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "524288000\n", "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
			want: Limit{CgroupV1, 500 * mib, 450 * mib}},
		{name: "v1 in a container: the path is the host's", root: files("proc/self/cgroup", "7:memory:/docker/abc\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes", "524288000\n"), want: Limit{CgroupV1, 500 * mib, 450 * mib}},
		{name: "v1 without a limit", root: files("proc/self/cgroup", "7:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
			want: Limit{Source: None}},
		{name: "both, v2 without the controller", root: files("proc/self/cgroup", "1:memory:/a\n0::/a\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes", "524288000\n"), want: Limit{CgroupV1, 500 * mib, 450 * mib}},
		{name: "libraries never get more than half", request: Request{OffHeap: 400 * mib},
			root: files("proc/self/cgroup", "0::/\n", "sys/fs/cgroup/memory.max", "524288000\n"), want: Limit{CgroupV2, 500 * mib, 250 * mib}},
		{name: "no number", root: files("proc/self/cgroup", "0::/\n", "sys/fs/cgroup/memory.max", "plenty\n"), want: Limit{Source: None}, fails: true},
		{name: "a path that climbs", root: files("proc/self/cgroup", "0::/../../other\n", "sys/fs/cgroup/memory.max", "524288000\n"),
			want: Limit{CgroupV2, 500 * mib, 450 * mib}},
		{name: "lines that mean nothing", root: files("proc/self/cgroup", "\nx\n0:a\n"), want: Limit{Source: None}},
	} {
		c.request.Root = c.root
		c.request.Lookup = func(name string) (string, bool) { return c.env, name == Variable && c.env != "" }
		got, err := Find(c.request)
		if got != c.want || (err != nil) != c.fails {
			t.Errorf("%s: %+v, %v; want %+v", c.name, got, err, c.want)
		}
	}
}
