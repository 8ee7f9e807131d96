module callgate.dev/callgate/benches

go 1.24
