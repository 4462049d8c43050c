# Functions for the scripts of cases. What goes to standard output is compared.

# Runs a program and prints its exit status.
status() {
    local code=0
    "$@" || code=$?
    echo "$(basename "$1"): exit status $code"
}

# The same for a program that must succeed with plain routing.
succeeds() {
    local code=0
    "$@" || code=$?
    echo "$(basename "$1"): exit status $code"
    return "$code"
}

# The checksum of what is read.
digest() {
    sha256sum "$@" | cut -c1-24
}

# So many bytes, no part like another: payload BYTES [FIRST NUMBER]
payload() {
    { seq "${2:-1}" 4000000000 2>/dev/null || true; } | head -c "$1"
}

# Waits until something is true, for half a minute: until_true COMMAND...
until_true() {
    local tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        if [ "$tries" -gt 300 ]; then
            echo "never true: $*"
            return 1
        fi
        sleep 0.1
    done
}

# Whether something listens on a TCP port.
listens() {
    ss --no-header --listening --tcp --numeric "sport = :$1" | grep -q .
}

# Waits until the server listens on all these TCP ports, then lets the clients start.
ready() {
    local port
    for port in "$@"; do
        until_true listens "$port"
    done
    touch "$DIR/ready"
}

# Runs a program somewhere else: at client|access|gateway|router|server COMMAND...
at() {
    local place=$1
    shift
    local file="NET_$place"
    nsenter --net="${!file}" "$@"
}

# Adds a line of the server to the lines that are compared.
seen() {
    echo "$*" >>"$DIR/seen"
}

# Configures clients for an explicit proxy.
case "${PROXY:+$VIA}" in
    socks5) export all_proxy="socks5h://$PROXY_HOST:$PROXY_PORT" ;;
    http) export http_proxy="http://$PROXY_HOST:$PROXY_PORT" https_proxy="http://$PROXY_HOST:$PROXY_PORT" ;;
esac

# A certificate for the server, in $COMMON/cert.pem and $COMMON/key.pem.
certificate() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=server \
        -addext "subjectAltName=IP:10.3.0.2,IP:fd03::2" -keyout "$COMMON/key.pem" -out "$COMMON/cert.pem"
}

# Files for a web server, in $COMMON/www.
web_files() {
    mkdir -p "$COMMON/www/small"
    payload 20000000 >"$COMMON/www/large.bin"
    local number
    for number in $(seq 100); do
        payload $((number * 137)) "$number" >"$COMMON/www/small/$number.txt"
        echo "<a href=\"small/$number.txt\">$number</a>"
    done >"$COMMON/www/index.html"
}

# nginx on ports 80 and, by TLS with HTTP/2, 443; files can be uploaded below /upload/.
web_server() {
    mkdir -p "$DIR/upload"
    cat >"$DIR/nginx.conf" <<END
user root;
daemon off;
pid $DIR/nginx.pid;
error_log stderr;
events { worker_connections 4000; }
http {
    access_log off;
    client_max_body_size 1g;
    client_body_temp_path $DIR/body;
    keepalive_requests 100000;
    server {
        listen 80;
        listen [::]:80;
        listen 443 ssl http2;
        listen [::]:443 ssl http2;
        ssl_certificate $COMMON/cert.pem;
        ssl_certificate_key $COMMON/key.pem;
        root $COMMON/www;
        location /upload/ { root $DIR; dav_methods PUT DELETE; }
    }
}
END
    nginx -e stderr -c "$DIR/nginx.conf" &
    ready 80 443
}
