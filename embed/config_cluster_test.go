package embed

import (
	"errors"
	"reflect"
	"testing"
)

// complaints are the flags that a configuration is refused for, in order.
func complaints(t *testing.T, cfg Config) []string {
	t.Helper()
	err := cfg.Validate()
	if err == nil {
		return nil
	}
	var all *ConfigError
	if !errors.As(err, &all) {
		t.Fatalf("%v is no *ConfigError", err)
	}
	var flags []string
	for _, p := range all.Problems {
		flags = append(flags, p.Flag)
	}
	return flags
}

func TestClusterSettings(t *testing.T) {
	three := func(c *Config) { c.BootstrapExpect, c.Join = 3, []string{"127.0.0.1:7403"} }
	everywhere := func(c *Config) {
		c.Insecure, c.GRPCAddr, c.HTTPAddr, c.PeerAddr, c.GossipAddr = true, ":7400", "0.0.0.0:7401", "[::]:7402", ":7403"
		c.BootstrapExpect, c.Join = 3, []string{"db1:7403"}
	}
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   []string
	}{
		{"alone", func(c *Config) {}, nil},
		{"three", three, nil},
		{"five", func(c *Config) { three(c); c.BootstrapExpect = 5 }, nil},
		{"seven", func(c *Config) { three(c); c.BootstrapExpect = 7 }, nil},
		{"two", func(c *Config) { three(c); c.BootstrapExpect = 2 }, []string{"bootstrap-expect"}},
		{"four", func(c *Config) { three(c); c.BootstrapExpect = 4 }, []string{"bootstrap-expect"}},
		{"nine", func(c *Config) { three(c); c.BootstrapExpect = 9 }, []string{"bootstrap-expect"}},
		{"none", func(c *Config) { c.BootstrapExpect = -1 }, []string{"bootstrap-expect"}},
		{"three and no member to find", func(c *Config) { c.BootstrapExpect = 3 }, []string{"join"}},
		{"join alone", func(c *Config) { c.Join = []string{"127.0.0.1:7403"} }, []string{"bootstrap-expect"}},
		{"join by name", func(c *Config) { three(c); c.Join = []string{"localhost:7403", "[::1]:7403"} }, nil},
		{"join without a port", func(c *Config) { three(c); c.Join = []string{"127.0.0.1:7403", "127.0.0.2"} }, []string{"join"}},
		{"join without a host", func(c *Config) { three(c); c.Join = []string{":7403"} }, []string{"join"}},
		{"join everybody", func(c *Config) { three(c); c.Join = []string{"0.0.0.0:7403"} }, []string{"join"}},
		{"join at no port", func(c *Config) { three(c); c.Join = []string{"127.0.0.1:0"} }, []string{"join"}},
		{"others cannot reach it", func(c *Config) { three(c); c.Join = []string{"192.0.2.2:7403"} }, []string{"peer-addr", "gossip-addr"}},
		{"a name may be this machine's", func(c *Config) { three(c); c.Join = []string{"db2:7403"} }, nil},
		{"others can, by a way of their own", func(c *Config) { three(c); c.Join, c.AdvertiseHost = []string{"192.0.2.2:7403"}, "db1" }, nil},
		{"every interface and no name", everywhere, []string{"advertise-host"}},
		{"every interface by name", func(c *Config) { everywhere(c); c.AdvertiseHost = "db1" }, nil},
		{"every interface by IPv6", func(c *Config) { everywhere(c); c.AdvertiseHost = "fd00::1" }, nil},
		{"every interface, alone", func(c *Config) { everywhere(c); c.BootstrapExpect, c.Join = 1, nil }, nil},
		{"a name with a port", func(c *Config) { c.AdvertiseHost = "db1:7400" }, []string{"advertise-host"}},
		{"brackets", func(c *Config) { c.AdvertiseHost = "[::1]" }, []string{"advertise-host"}},
		{"a name for every interface", func(c *Config) { c.AdvertiseHost = "0.0.0.0" }, []string{"advertise-host"}},
	} {
		cfg := DefaultConfig()
		c.change(&cfg)
		if got := complaints(t, cfg); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: complaints about %v, want %v: %v", c.name, got, c.want, cfg.Validate())
		}
	}
}
