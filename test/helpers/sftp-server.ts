import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, chownSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { findFreePort, isListening } from './free-ports.ts';
import { waitFor } from './wait.ts';

/** A folder of an SFTP server with the key of its user. */
export interface SftpServer {
  readonly host: string;
  readonly port: number;
  readonly username: string;
  readonly privateKey: string;
  /** Fingerprint of the server's key. */
  readonly hostKey: string;
  readonly folder: string;
  /** Kills the server. */
  stop(): Promise<void>;
}

const usualPlaces = ['/usr/sbin/sshd', '/usr/local/sbin/sshd'];
/** The user of the server if the tests run as root: OpenSSH then needs no other user. */
const nobody = { name: 'nobody', uid: 65_534, gid: 65_534 };

/** Returns the path of OpenSSH's server; undefined, with a notice, if it is not installed. */
export function findSshd(): string | undefined {
  const named = process.env['TRIBUTARY_TEST_SSHD'];
  const found = [...(named === undefined ? [] : [named]), ...usualPlaces].find((file) => existsSync(file));
  if (found === undefined)
    process.stderr.write('skipped: sshd is missing: install openssh-server, or set TRIBUTARY_TEST_SSHD\n');
  return found;
}

function createKey(file: string): string {
  const made = spawnSync('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', file], { encoding: 'utf8' });
  if (made.status !== 0) throw new Error(`ssh-keygen failed: ${made.stderr}`);
  const shown = spawnSync('ssh-keygen', ['-lf', `${file}.pub`], { encoding: 'utf8' }).stdout;
  return shown.split(' ')[1] ?? '';
}

/** Starts an SFTP server on an empty folder, without the rights of root. */
export async function startSftpServer(sshd: string, folder: string): Promise<SftpServer> {
  const isRoot = process.getuid?.() === 0;
  const port = await findFreePort();
  const data = path.join(folder, 'data');
  mkdirSync(data, { recursive: true });
  const [serverKey, userKey] = [path.join(folder, 'server'), path.join(folder, 'user')];
  const hostKey = createKey(serverKey);
  createKey(userKey);
  const config = path.join(folder, 'config');
  const lines = [
    `Port ${port}`,
    'ListenAddress 127.0.0.1',
    `HostKey ${serverKey}`,
    `AuthorizedKeysFile ${userKey}.pub`,
    `PidFile ${folder}/pid`,
    'StrictModes no',
    'UsePAM no',
    'Subsystem sftp internal-sftp',
    'ForceCommand internal-sftp',
  ];
  writeFileSync(config, `${lines.join('\n')}\n`);
  const privateKey = readFileSync(userKey, 'utf8');
  if (isRoot) {
    for (const file of [folder, data, serverKey, config, `${userKey}.pub`]) chownSync(file, nobody.uid, nobody.gid);
    chmodSync(folder, 0o755);
  }
  const words = ['-D', '-e', '-f', config];
  // Its account is locked, which only a shadow file of a private mount namespace changes.
  const asNobody =
    'mount --bind "$1" /etc/shadow && shift && exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"';
  const shadow = path.join(folder, 'shadow');
  writeFileSync(shadow, 'nobody:x:20000:0:99999:7:::\n');
  const child = isRoot
    ? spawn('unshare', ['-m', 'sh', '-c', asNobody, 'sh', shadow, sshd, ...words], { stdio: 'ignore' })
    : spawn(sshd, words, { stdio: 'ignore' });
  await waitFor('sshd accepts connections', async () => child.exitCode !== null || (await isListening(port)), 20_000);
  return {
    host: '127.0.0.1',
    port,
    username: isRoot ? nobody.name : (process.env['USER'] ?? ''),
    privateKey,
    hostKey,
    folder: data,
    async stop() {
      child.kill('SIGKILL');
      if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
    },
  };
}
