import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { createServer } from 'node:net';
import { describe, expect, it } from 'vitest';
import { httpAddress, resolveHost, settlePorts } from '../../../../src/runtime/http/ports.ts';

describe('ports', () => {
  it('Ports are free ones where any will do, and never the same twice', async () => {
    const ports = await settlePorts('127.0.0.1', [
      { port: 0, what: 'one' },
      { port: 0, what: 'two' },
    ]);
    expect(new Set(ports).size).toBe(2);
    // Below those that the system takes for outgoing connections.
    for (const port of ports) expect(port).toBeLessThan(32_768);
  });

  it('Ports are refused when another process has them, or when two listeners want the same', async () => {
    const taken = createServer().listen({ host: '127.0.0.1', port: 0 });
    await once(taken, 'listening');
    const { port } = taken.address() as { port: number };
    const inUse = { code: 'start_failed', message: `api port: 127.0.0.1:${port} is in use` };
    await expect(settlePorts('127.0.0.1', [{ port, what: 'api port' }])).rejects.toMatchObject(inUse);
    taken.close();
    await once(taken, 'close');
    await expect(
      settlePorts('127.0.0.1', [
        { port, what: 's2s port' },
        { port, what: 'api port' },
      ]),
    ).rejects.toMatchObject(inUse);
  });

  it("Ports are not blamed for an address that is not this machine's", async () => {
    await expect(settlePorts('192.0.2.1', [{ port: 0, what: 's2s port' }])).rejects.toMatchObject({
      hint: expect.stringContaining('Choose an address'),
    });
  });

  it('Ports listen at one address, also of a name that has several', async () => {
    expect(await resolveHost('0.0.0.0')).toBe('0.0.0.0');
    expect(await resolveHost('::1')).toBe('::1');
    // a name that no resolver is asked for
    await expect(resolveHost('a'.repeat(300))).rejects.toMatchObject({
      code: 'start_failed',
      hint: expect.stringContaining('Set an address'),
    });
  });

  // A machine without /etc/hosts knows no name at all.
  it.runIf(existsSync('/etc/hosts'))('Ports listen at the IPv4 address of a name that has both', async () => {
    expect(await resolveHost('localhost')).toBe('127.0.0.1');
  });

  it('Ports follow an IPv6 address in brackets', () => {
    expect(httpAddress('::1', 80)).toBe('http://[::1]:80');
  });
});
