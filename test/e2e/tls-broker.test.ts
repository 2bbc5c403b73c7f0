import { execFileSync, spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { temporaryFolder } from '../helpers/folder.ts';
import { findFreePort, isListening } from '../helpers/free-ports.ts';
import { isWhole } from '../helpers/in-turn.ts';
import { readRows } from '../helpers/lake.ts';
import { natsBinary } from '../helpers/nats.ts';
import { addTestApp } from '../helpers/service-access.ts';
import { startTestService, type TestService } from '../helpers/service.ts';
import { waitFor } from '../helpers/wait.ts';

/** Number of kills of the broker. */
const rounds = isWhole ? 3 : 1;
const noOpenssl = spawnSync('openssl', ['version']).status === 0 ? false : 'openssl is missing';

/** Creates a self-signed certificate for this machine. */
function makeCertificate(folder: string): { readonly certificate: string; readonly key: string } {
  const [certificate, key] = [path.join(folder, 'server.pem'), path.join(folder, 'server.key')];
  const subject = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1'];
  const kind = ['-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'];
  execFileSync('openssl', ['req', ...kind, ...subject, '-keyout', key, '-out', certificate], { stdio: 'ignore' });
  return { certificate, key };
}

describe.skipIf(noOpenssl)('a broker behind TLS', () => {
  const folder = temporaryFolder();
  let broker: ChildProcess;
  let startBroker: () => Promise<void>;
  let service: TestService;
  let token: string;

  beforeAll(async () => {
    const { certificate, key } = makeCertificate(folder);
    const port = await findFreePort();
    const config = path.join(folder, 'nats.conf');
    writeFileSync(
      config,
      `listen: "127.0.0.1:${port}"
jetstream { store_dir: "${folder}/store", sync_interval: always }
authorization { user: sender, password: secret }
tls { cert_file: "${certificate}", key_file: "${key}", ca_file: "${certificate}", verify: true }\n`,
    );
    const binary = await natsBinary();
    startBroker = async () => {
      broker = spawn(binary, ['-c', config], { stdio: 'ignore' });
      await waitFor('nats-server listens', () => isListening(port));
    };
    await startBroker();
    const dataDir = path.join(folder, 'data');
    token = await addTestApp(dataDir);
    service = await startTestService({
      dataDir,
      settings: {
        TRIBUTARY_NATS_URL: `tls://sender:secret@localhost:${port}`,
        TRIBUTARY_NATS_CA_FILE: certificate,
        TRIBUTARY_NATS_CERT_FILE: certificate,
        TRIBUTARY_NATS_KEY_FILE: key,
      },
    });
  });
  afterAll(async () => {
    await service.destroy();
    broker.kill('SIGKILL');
  });

  const send = async (customUserId: string): Promise<number> => {
    const body = JSON.stringify({ customUserId, customEventName: 'level_start' });
    const headers = { authorization: token };
    return (await fetch(`${service.s2s}/v1/customEvent/?idApp=1`, { method: 'POST', headers, body })).status;
  };

  const readUsers = async (): Promise<string[]> =>
    (await readRows(service.dataDir, 'custom_user_id').catch(() => [])).map((row) => String(row['custom_user_id']));
  const waitForUsers = (count: number): Promise<void> =>
    waitFor(`${count} events are in the lake`, async () => (await readUsers()).length === count);

  it('Events are committed, and no process of the service exits when the broker is killed and restarted', async () => {
    expect(await send('before')).toBe(200);
    await waitForUsers(1);
    const pids = service.processes().map(({ pid }) => pid);
    for (let round = 0; round < rounds; round += 1) {
      const ended = once(broker, 'exit');
      broker.kill('SIGKILL');
      await ended;
      expect(await send(`away ${round}`)).toBe(500);
      await startBroker();
      await waitFor('an event is accepted again', async () => (await send(`again ${round}`)) === 200);
      await waitForUsers(round + 2);
    }
    expect(service.processes().map(({ pid }) => pid)).toEqual(pids);
    expect((await readUsers()).toSorted()).toEqual([
      ...Array.from({ length: rounds }, (_, round) => `again ${round}`),
      'before',
    ]);
  });
});
