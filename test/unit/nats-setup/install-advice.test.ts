import { platform } from 'node:os';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { installCommand, readSystem } from '../../../src/nats-setup/ensure-nats-server.ts';
import { testFolder } from '../../helpers/folder.ts';

describe('the advice for a system without nats-server', () => {
  it('The advice for a system without nats-server names the command of the nearest known distribution', () => {
    expect(installCommand({ platform: 'darwin', family: [] })).toBe('brew install nats-server');
    expect(installCommand({ platform: 'linux', family: ['alpine'] })).toBe('apk add nats-server');
    expect(installCommand({ platform: 'linux', family: ['rocky', 'rhel', 'centos', 'fedora'] })).toContain(
      'dnf install golang',
    );
    expect(installCommand({ platform: 'freebsd', family: [] })).toContain(
      'go install github.com/nats-io/nats-server/v2@latest',
    );
    expect(installCommand({ platform: 'linux', family: ['constructor'] })).toContain('go install');
  });

  it('The advice for a system without nats-server reads the distribution and its kin from os-release', async () => {
    const etc = testFolder();
    await writeFile(
      path.join(etc, 'os-release'),
      'NAME="Linux Mint"\nVERSION_ID="22"\nID=linuxmint\nID_LIKE="ubuntu debian"\n',
    );
    const family = platform() === 'linux' ? ['linuxmint', 'ubuntu', 'debian'] : [];
    expect(await readSystem(etc)).toEqual({ platform: platform(), family });
    expect((await readSystem(path.join(etc, 'nothing'))).family).toEqual([]);
  });
});
