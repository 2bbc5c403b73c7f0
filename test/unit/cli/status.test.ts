import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { statusCommand } from '../../../src/cli/status.ts';
import { dataPaths } from '../../../src/config.ts';
import { findProcessStart } from '../../../src/runtime/processes/process-identity.ts';
import { writeServiceState } from '../../../src/runtime/processes/service-state.ts';
import { testFolder } from '../../helpers/folder.ts';
import { runCommandHere } from '../../helpers/run-command.ts';

it('The status of a service whose folder is gone names that folder, not what follows from it, and a misspelt setting is named', async () => {
  const dataDir = path.join(testFolder(), 'data');
  const { run, lake } = dataPaths(dataDir);
  mkdirSync(dataDir);
  const at = '2024-05-01T10:00:00.000Z';
  writeServiceState(run, {
    pid: process.pid,
    processStart: findProcessStart(process.pid),
    folders: { [lake]: '1:1' },
    startedAt: at,
    writtenAt: at,
    s2s: undefined,
    api: undefined,
    natsUrl: 'nats://u:p@127.0.0.1:1',
    processes: [{ name: 'compact', state: 'running', pid: 1, restarts: 0, lastError: undefined }],
    facts: {},
    silentMs: {},
  });
  const answers: unknown[] = [];
  const notes: string[] = [];
  const keep = (line: unknown): void => void answers.push(line);
  const never = new AbortController().signal;
  const code = await runCommandHere(statusCommand, ['--data', dataDir], {
    environment: { TRIBUTARY_LOGLEVEL: 'debug' },
    entry: '',
    answer: keep,
    print: keep,
    note: (line) => void notes.push(line),
    stop: never,
    force: never,
  });
  expect(notes).toEqual(['tributary: TRIBUTARY_LOGLEVEL is no setting; did you mean TRIBUTARY_LOG_LEVEL?']);
  expect(code).toBe(1);
  const what = `the folder ${lake} was taken from under the running service: it was moved, removed or replaced`;
  expect(answers).toMatchObject([{ running: true, problems: [{ code: 'folder_lost', what }] }]);
  expect(answers).toMatchObject([{ stream: undefined, lake: undefined }]);
});
