package resonate

import "testing"

func TestAddresses(t *testing.T) {
	for address, want := range map[string]bool{
		"poll://any@g": true, "poll://any@g/p": true, "poll://uni@g/p": true, "http://h/x": true, "https://h:8443": true, "gcps://project/topic": true, "bash://x": true, "x:y": true,
		"": false, "g": false, ":": false, ":x": false, "/a:b": false, "//h/x:1": false, "http://%zz": false, "1x://h": false, "poll://any@g\x00": false,
	} {
		if got := validAddress(address); got != want {
			t.Errorf("%q is an address: %v", address, got)
		}
	}
}
