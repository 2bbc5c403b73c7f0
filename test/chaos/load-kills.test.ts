import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { createRandom } from '../../src/demo/random.ts';
import { tablePaths } from '../../src/lake/lake.ts';
import { readSnapshot } from '../../src/lake/log/snapshot.ts';
import { chaosFigure, chaosSeed } from '../helpers/chaos.ts';
import { recordFinding } from '../helpers/chaos-report.ts';
import { bundleProgram } from '../helpers/bundled.ts';
import { testFolder } from '../helpers/folder.ts';
import { getDataset } from '../helpers/loads.ts';
import { runCommand } from '../helpers/service.ts';
import { addTestApp } from '../helpers/service-access.ts';

const kills = chaosFigure('TRIBUTARY_TEST_KILLS', { short: 3, long: 100 });
const rows = 50_000;
const seed = chaosSeed();
const again = `make chaos PART=load-kills SEED=${seed} KILLS=${kills}`;

const writeRows = (file: string): void =>
  writeFileSync(
    file,
    `tsEvent,idApp,eventId,total,currency\n${Array.from({ length: rows }, (_, index) => `${1_700_000_000 + index},1,e${index},${index / 100},EUR\n`).join('')}`,
  );

describe('a load that is killed', () => {
  it(
    `A load or its undo, killed ${kills} times, leaves all its rows or none, and no temporary file (seed ${seed})`,
    { timeout: 120_000 + kills * 60_000 },
    async () => {
      const random = createRandom(seed);
      const folder = testFolder();
      const program = path.join(bundleProgram(folder), 'main.js');
      const dataDir = path.join(folder, 'data');
      const file = path.join(folder, 'rows.csv');
      writeRows(file);
      await addTestApp(dataDir, '1', program);
      const { table: tableDir } = tablePaths(path.join(dataDir, 'lake'), getDataset('payments'));
      const count = async (): Promise<number> =>
        (await readSnapshot(tableDir)).files.reduce((sum, { numRecords = 0 }) => sum + numRecords, 0);
      const load = ['load', 'payments', file, '--data', dataDir];

      const beganMs = performance.now();
      const { load: loadId, stored } = await runCommand(load, {}, program);
      const takesMs = performance.now() - beganMs;
      expect(stored).toBe(rows);
      const undo = ['load', 'undo', String(loadId), '--data', dataDir];
      let isLoaded = true;
      let whole = 0;
      for (let kill = 0; kill < kills; kill += 1) {
        const child = spawn(process.execPath, [program, ...(isLoaded ? undo : load)], { stdio: 'ignore' });
        const exited = once(child, 'exit');
        const timer = setTimeout(() => child.kill('SIGKILL'), random.next() * takesMs);
        await exited;
        clearTimeout(timer);
        const found = await count();
        expect([0, rows]).toContain(found);
        if ((found === rows) !== isLoaded) whole += 1;
        isLoaded = found === rows;
      }
      if (!isLoaded) await runCommand(load, {}, program);
      expect(await count()).toBe(rows);
      expect(await runCommand(load, {}, program)).toMatchObject({ stored: 0, loadedBefore: true });

      const { files, txns } = await readSnapshot(tableDir);
      expect(txns.size).toBe(1);
      const named = new Set(files.map((one) => one.path));
      const temporary = readdirSync(tableDir, { recursive: true, encoding: 'utf8' }).filter((name) =>
        /(^|\/)(work|source|spill)(\/|$)/.test(name),
      );
      expect(temporary).toEqual([]);
      recordFinding({
        promise: 'P4',
        what: 'loads killed in the middle',
        wanted: 'all rows or none, nothing left behind',
        figures: { kills, carriedOut: whole, files: named.size },
        reached: true,
        seed,
        again,
      });
    },
  );
});
