import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdirSync, readdirSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { findProcessStart } from '../../../../src/runtime/processes/procfs.ts';
import { findFolderId } from '../../../../src/runtime/files/folder-id.ts';
import {
  findCompetingService,
  listCrashedServices,
  readServiceStates,
  removeServiceState,
  sweepServiceStates,
  writeServiceState,
  type ServiceState,
} from '../../../../src/runtime/processes/service-state.ts';
import { testFolder } from '../../../helpers/folder.ts';

function stateOf(pid: number, processStart: string | undefined): ServiceState {
  const at = '2024-05-01T10:00:00.000Z';
  return {
    pid,
    processStart,
    startedAt: at,
    writtenAt: at,
    s2s: undefined,
    api: undefined,
    natsUrl: 'nats://u:p@127.0.0.1:1',
    processes: [],
    facts: {},
    silentMs: {},
  };
}

const own = stateOf(process.pid, findProcessStart(process.pid));

describe('the state of a service', () => {
  it('The state of a service is found while its supervisor runs, and removed when it has stopped', () => {
    const folder = testFolder();
    expect(readServiceStates(path.join(folder, 'none'))).toEqual([]);
    writeServiceState(folder, own);
    expect(readServiceStates(folder).map(({ pid }) => pid)).toEqual([process.pid]);
    removeServiceState(folder, process.pid);
    expect(readdirSync(folder)).toEqual([]);
  });

  it('The state of a service is not taken for that of a later process with the same id', () => {
    const folder = testFolder();
    writeServiceState(folder, stateOf(process.pid, '1'));
    expect(readServiceStates(folder)).toEqual([]);
  });

  it('The state of a service is skipped if a power cut has truncated it', () => {
    const folder = testFolder();
    writeFileSync(path.join(folder, 'supervisor-1.json'), '{"pid":1');
    writeServiceState(folder, own);
    expect(readServiceStates(folder)).toHaveLength(1);
  });

  it('The state of a service is swept when its supervisor was killed, and only then', () => {
    const folder = testFolder();
    writeServiceState(folder, own);
    writeServiceState(folder, stateOf(1, 'another'));
    writeFileSync(path.join(folder, 'supervisor-2.json'), '');
    sweepServiceStates(folder);
    expect(readdirSync(folder)).toEqual([`supervisor-${process.pid}.json`]);
  });

  it('The state of a service that came with a copy of another data folder is not that of the copy: neither running nor lost', () => {
    const run = path.join(testFolder(), 'run');
    writeServiceState(run, { ...own, folder: findFolderId(path.dirname(run)) ?? '' });
    expect(readServiceStates(run)).toHaveLength(1);
    writeServiceState(run, { ...own, folder: findFolderId('/') ?? '' });
    expect([readServiceStates(run), listCrashedServices(run)]).toEqual([[], []]);
    sweepServiceStates(run);
    expect(readdirSync(run)).toEqual([]);
  });

  it('The state of a service that was copied over its own folder by a restore does not count as the lost service', () => {
    const run = path.join(testFolder(), 'run');
    const killed = { ...stateOf(process.pid, 'of another'), folder: findFolderId(path.dirname(run)) ?? '' };
    writeServiceState(run, killed);
    expect(listCrashedServices(run).map(({ pid }) => pid)).toEqual([process.pid]);
    const file = path.join(run, `supervisor-${process.pid}.json`);
    cpSync(file, `${file}.backup`);
    renameSync(`${file}.backup`, file);
    expect([readServiceStates(run), listCrashedServices(run)]).toEqual([[], []]);
  });

  it('The state of a service of an earlier version, which names no folder, counts while its process runs and not as lost afterwards', () => {
    const run = path.join(testFolder(), 'run');
    mkdirSync(run);
    const write = (state: ServiceState): void =>
      writeFileSync(path.join(run, `supervisor-${state.pid}.json`), JSON.stringify(state));
    write(own);
    expect(readServiceStates(run)).toHaveLength(1);
    write(stateOf(process.pid, 'of another'));
    expect([readServiceStates(run), listCrashedServices(run)]).toEqual([[], []]);
  });

  it('The state of a service names the other service that runs one of the same processes on the folder', async () => {
    const run = path.join(testFolder(), 'run');
    const other = spawn('cat', { stdio: ['pipe', 'ignore', 'inherit'] });
    const pid = other.pid ?? 0;
    const compact = { name: 'compact', state: 'running', pid: 1, restarts: 0, lastError: undefined } as const;
    writeServiceState(run, { ...stateOf(pid, findProcessStart(pid)), processes: [compact] });
    expect(findCompetingService(run, ['ingest', 'compact'])).toBe(`the tributary service (pid ${pid})`);
    expect(findCompetingService(run, ['ingest', 'export'])).toBeUndefined();
    other.kill('SIGKILL');
    await once(other, 'exit');
    expect(findCompetingService(run, ['compact'])).toBeUndefined();
  });
});
