//! Databases and caches.

use super::PYTHON;
use crate::case::Case;
use crate::needed::Needed;

const POSTGRESQL: &[Needed] = &[
    Needed::new("/usr/lib/postgresql/*/bin/postgres", "postgresql"),
    Needed::new("/usr/lib/postgresql/*/bin/pgbench", "postgresql"),
    Needed::new("psql", "postgresql-client"),
    Needed::new("runuser", "util-linux"),
];
const REDIS: &[Needed] = &[
    Needed::new("redis-server", "redis-server"),
    Needed::new("redis-benchmark", "redis-tools"),
    PYTHON,
];
const MARIADB: &[Needed] = &[
    Needed::new("mariadbd", "mariadb-server"),
    Needed::new("mariadb-install-db", "mariadb-server"),
    Needed::new("mariadb-dump", "mariadb-client"),
];
const MEMCACHED: &[Needed] = &[Needed::new("memcached", "memcached"), PYTHON];

/// A PostgreSQL server that accepts every user without a password; it runs as the user of Debian's
/// package.
const fn postgresql(name: &'static str) -> Case {
    Case::new(name, POSTGRESQL)
        .several_users()
        .prepare(
            r#"install -d -o postgres -m 700 "$COMMON/data"
            cd /
            runuser -u postgres -- "$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)/initdb" \
                -D "$COMMON/data" --auth=trust --no-sync
            printf 'host all all 0.0.0.0/0 trust\nhost all all ::/0 trust\n' >>"$COMMON/data/pg_hba.conf""#,
        )
        .server(
            r#"cp -a "$COMMON/data" "$DIR/data"
            cd /
            runuser -u postgres -- "$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)/postgres" \
                -D "$DIR/data" -c listen_addresses='*' -c unix_socket_directories='' -c fsync=off &
            until_true pg_isready --host 127.0.0.1
            ready 5432"#,
        )
}

pub(super) const CASES: &[Case] = &[
    postgresql("PostgreSQL: COPY in and out, 20 MB").client(
        r#"export PGHOST=$SERVER PGUSER=postgres
        psql -qAtc 'create table if not exists numbers (number int, text text); truncate numbers'
        seq 600000 | sed 's/.*/&\tThis is line number &./' | psql -qAtc 'copy numbers from stdin'
        psql -qAtc 'select count(*), sum(number) from numbers'
        psql -qAtc 'copy (select * from numbers order by number) to stdout' | digest"#,
    ),
    postgresql("PostgreSQL: cancel, LISTEN and NOTIFY after idleness, pgbench -C").client(
        r#"export PGHOST=$SERVER PGUSER=postgres
        psql -qAtc 'select pg_sleep(60)' 2>error &
        query=$!
        until_true sh -c 'psql -qAtc "select count(*) from pg_stat_activity where query like '"'select pg_sleep%'"'" | grep -q 1'
        kill -INT $query
        wait $query || echo "psql: exit status $?"
        cat error
        { echo 'listen news;'; sleep 9; echo 'select 1;'; } | psql -qAt >heard &
        sleep 6
        psql -qAtc "notify news, 'it is here'"
        wait $!
        sed 's/ from server process.*//' heard
        pgbench=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)/pgbench
        $pgbench --initialize --quiet postgres 2>/dev/null
        $pgbench --connect --client 4 --transactions 40 --no-vacuum postgres 2>/dev/null |
            grep 'actually processed'"#,
    ),
    redis("redis: pipelines, a large value, publish after idleness").client(
        r#"run="redis-cli -h $SERVER"
        $run flushall
        seq 20000 | sed 's/.*/SET key& value&/' | $run --pipe | tail -n 1
        payload 5000000 | $run -x set large
        $run get large | digest
        $run dbsize
        redis-benchmark -h "$SERVER" -q -n 5000 -c 20 -P 16 -t set,get >/dev/null && echo benchmark done
        { timeout 15 redis-cli -h "$SERVER" subscribe news || true; } >heard &
        sleep 6
        $run publish news 'it is here'
        until_true grep -q 'it is here' heard
        cat heard"#,
    ),
    redis("redis: 800 idle connections, PING before and after").client(
        r#"cat >client.py <<'END'
import os, socket, time
connections = [socket.create_connection((os.environ["SERVER"], 6379), timeout=60) for _ in range(800)]
def ping():
    for connection in connections:
        connection.sendall(b"PING\r\n")
    return sum(connection.recv(100) == b"+PONG\r\n" for connection in connections)
print(ping())
time.sleep(5)
print(ping())
END
        python3 client.py"#,
    ),
    Case::new("MariaDB: restore 100,000 rows, dump", MARIADB)
        .prepare(
            r#"mariadb-install-db --no-defaults --user=root --datadir="$COMMON/data" --skip-test-db \
                --auth-root-authentication-method=normal >/dev/null
            {
                echo 'create table numbers (number int primary key, text varchar(80)) engine=InnoDB;'
                seq 100000 | awk 'NR % 1000 == 1 { printf "insert into numbers values " }
                    { printf "(%d, '"'"'This is line number %d.'"'"')%s", $1, $1, NR % 1000 ? "," : ";\n" }'
            } >"$COMMON/restore.sql""#,
        )
        .server(
            r#"cp -a "$COMMON/data" "$DIR/data"
            mariadbd --no-defaults --user=root --datadir="$DIR/data" --socket="$DIR/data/sock" \
                --pid-file="$DIR/data/pid" --bind-address='*' --port=3306 --skip-grant-tables \
                --skip-name-resolve --innodb-flush-log-at-trx-commit=0 &
            ready 3306"#,
        )
        .client(
            r#"mariadb -h "$SERVER" -e 'drop database if exists one; create database one'
            succeeds mariadb -h "$SERVER" one <"$COMMON/restore.sql"
            mariadb -h "$SERVER" -N -e 'select count(*), sum(number) from one.numbers'
            mariadb-dump -h "$SERVER" --skip-comments one | digest"#,
        ),
    Case::new("memcached: a value of 900 KB, 500 keys", MEMCACHED)
        .server("memcached -u root -l 0.0.0.0,:: -p 11211 &\nready 11211")
        .client(
            r#"cat >client.py <<'END'
import hashlib, os, socket
connection = socket.create_connection((os.environ["SERVER"], 11211), timeout=30)
file = connection.makefile("rb")
def store(key, value):
    connection.sendall(b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value))
    return file.readline()
def get(key):
    connection.sendall(b"get %s\r\n" % key)
    length = int(file.readline().split()[3])
    value = file.read(length + 2)[:-2]
    assert file.readline() == b"END\r\n"
    return value
large = bytes(range(250)) * 3600
print(store(b"large", large), get(b"large") == large)
stored = {store(b"key%d" % number, b"value%d" % number) for number in range(500)}
print(stored, all(get(b"key%d" % number) == b"value%d" % number for number in range(500)))
END
            python3 client.py"#,
        ),
];

const fn redis(name: &'static str) -> Case {
    Case::new(name, REDIS).server(
        r#"redis-server --port 6379 --bind '*' '-::*' --save '' --protected-mode no --dir "$DIR" \
            --tcp-backlog 1000 --maxclients 2000 >/dev/null &
        ready 6379"#,
    )
}
