/* A download through lwIP, as Debian builds it (liblwip0).
 *
 * Arguments: own address, address and port of the server. Standard input is a TUN device: a read
 * or a write is one IP packet. Sends "get" and writes what comes to standard output until the
 * server closes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <lwip/api.h>
#include <lwip/ip_addr.h>
#include <lwip/netif.h>
#include <lwip/pbuf.h>
#include <lwip/sys.h>
#include <lwip/tcpip.h>

enum { DEVICE = 0, MTU = 1500, LARGEST_PACKET = 65535 };

static void check(err_t error, const char *what)
{
    if (error != ERR_OK) {
        fprintf(stderr, "%s: lwIP error %d\n", what, error);
        exit(1);
    }
}

static err_t send_packet(struct pbuf *packet)
{
    static unsigned char buffer[LARGEST_PACKET];
    u16_t length = pbuf_copy_partial(packet, buffer, sizeof buffer, 0);
    return write(DEVICE, buffer, length) == length ? ERR_OK : ERR_IF;
}

static err_t send4(struct netif *netif, struct pbuf *packet, const ip4_addr_t *to)
{
    (void)netif;
    (void)to;
    return send_packet(packet);
}

static err_t send6(struct netif *netif, struct pbuf *packet, const ip6_addr_t *to)
{
    (void)netif;
    (void)to;
    return send_packet(packet);
}

static err_t initialise(struct netif *netif)
{
    netif->name[0] = 't';
    netif->name[1] = 'n';
    netif->mtu = MTU;
    netif->mtu6 = MTU;
    netif->output = send4;
    netif->output_ip6 = send6;
    return ERR_OK;
}

/* One buffer for each packet, of its size: in Debian's build the buffers of the pool (PBUF_POOL)
 * are smaller than the library takes them to be. */
static void receive(void *argument)
{
    struct netif *netif = argument;
    static unsigned char buffer[LARGEST_PACKET];
    ssize_t length;
    while ((length = read(DEVICE, buffer, sizeof buffer)) > 0) {
        struct pbuf *packet = pbuf_alloc(PBUF_RAW, (u16_t)length, PBUF_RAM);
        if (packet == NULL)
            continue;
        pbuf_take(packet, buffer, (u16_t)length);
        if (netif->input(packet, netif) != ERR_OK)
            pbuf_free(packet);
    }
}

static void started(void *argument)
{
    sys_sem_signal(argument);
}

static void write_out(struct pbuf *data)
{
    for (struct pbuf *part = data; part != NULL; part = part->next)
        if (fwrite(part->payload, 1, part->len, stdout) != part->len) {
            perror("standard output");
            exit(1);
        }
}

int main(int count, char **arguments)
{
    static struct netif netif;
    ip_addr_t own, server;
    if (count != 4 || !ipaddr_aton(arguments[1], &own) || !ipaddr_aton(arguments[2], &server)) {
        fprintf(stderr, "usage: client OWN-ADDRESS SERVER PORT\n");
        return 2;
    }
    srand((unsigned)getpid());

    sys_sem_t ready;
    check(sys_sem_new(&ready, 0), "semaphore");
    tcpip_init(started, &ready);
    sys_sem_wait(&ready);

    LOCK_TCPIP_CORE();
    netif_add_noaddr(&netif, NULL, initialise, tcpip_input);
    if (IP_IS_V4(&own)) {
        ip4_addr_t mask;
        IP4_ADDR(&mask, 255, 255, 255, 0);
        netif_set_addr(&netif, ip_2_ip4(&own), &mask, IP4_ADDR_ANY4);
    } else {
        netif_ip6_addr_set(&netif, 0, ip_2_ip6(&own));
        netif_ip6_addr_set_state(&netif, 0, IP6_ADDR_PREFERRED);
    }
    netif_set_default(&netif);
    netif_set_link_up(&netif);
    netif_set_up(&netif);
    UNLOCK_TCPIP_CORE();
    sys_thread_new("receive", receive, &netif, 0, 0);

    struct netconn *connection = netconn_new(IP_IS_V4(&own) ? NETCONN_TCP : NETCONN_TCP_IPV6);
    if (connection == NULL) {
        fprintf(stderr, "no connection\n");
        return 1;
    }
    check(netconn_connect(connection, &server, (u16_t)atoi(arguments[3])), "connect");
    check(netconn_write(connection, "get", 3, NETCONN_COPY), "write");
    err_t error;
    struct pbuf *data;
    while ((error = netconn_recv_tcp_pbuf(connection, &data)) == ERR_OK) {
        write_out(data);
        pbuf_free(data);
    }
    if (error != ERR_CLSD)
        check(error, "receive");
    fflush(stdout);
    netconn_close(connection);
    netconn_delete(connection);
    /* The last FIN and ACKs leave before the device goes. */
    usleep(100 * 1000);
    return 0;
}
