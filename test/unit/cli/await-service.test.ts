import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { awaitService } from '../../../src/cli/stop.ts';
import { testFolder } from '../../helpers/folder.ts';

const note = (): void => undefined;
const never = new AbortController().signal;

/** The id of a process that has ended. */
async function endedPid(): Promise<number> {
  const child = spawn('true');
  await once(child, 'exit');
  return child.pid ?? 0;
}

describe('the wait for a service', () => {
  it('It ends with the last line of the log and its path when the started process has exited', async () => {
    const dataDir = testFolder();
    const log = path.join(dataDir, 'service.log');
    writeFileSync(
      log,
      `tributary: of yesterday\n${'{"level":30}\n'.repeat(9000)}tributary: ops port is in use. Choose another.\n`,
    );
    const awaited = { dataDir, runFolder: path.join(dataDir, 'run'), pid: await endedPid(), signal: never, note };
    await expect(awaitService({ ...awaited, log })).rejects.toMatchObject({
      message: 'the service did not start: ops port is in use. Choose another.',
      hint: expect.stringContaining(log) as string,
    });
    await expect(awaitService(awaited)).rejects.toThrow(/the process \d+ has ended/);
  });

  it('It reports its real duration when it is interrupted', async () => {
    const dataDir = testFolder();
    const signal = AbortSignal.abort();
    await expect(awaitService({ dataDir, runFolder: dataDir, pid: process.pid, signal, note })).rejects.toThrow(
      'interrupted after 0 s',
    );
  });
});
