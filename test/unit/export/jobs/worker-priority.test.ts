import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { getPriority } from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';

const worker = path.resolve(import.meta.dirname, '../../../../dist/export/worker/worker.js');

test('An export worker has a lower priority than its service at any priority of the service, so that import goes first', async () => {
  for (const given of [0, 10]) {
    const child = spawn('nice', ['-n', String(given), process.execPath, worker], {
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    onTestFinished(() => void child.kill('SIGKILL'));
    child.send({});
    // It responds when its priority is set, here that it got no request.
    expect((await once(child, 'message'))[0]).toMatchObject({ kind: 'failed' });
    expect(getPriority(child.pid)).toBe(Math.min(19, getPriority() + given + 5));
    child.kill('SIGKILL');
    await once(child, 'exit');
  }
});
