import { cpSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import type { Play } from './compactors.ts';
import type { Disk } from './disk.ts';
import { createLakeJudge } from './lake-judge.ts';
import { createLedger } from './ledger.ts';

/** Makes a folder with all its content durable. */
function syncAll(disk: Disk, folder: string): void {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const file = path.join(folder, entry.name);
    disk.made(file);
    if (entry.isDirectory()) syncAll(disk, file);
    else disk.synced(disk.inodeOf(file), readFileSync(file));
  }
  disk.syncedFolder(folder);
}

/**
 * Copies the data folder at this instant, with its broker's store and all unfinished work. The copy is then a separate
 * service with its own clients. It has everything acknowledged before the copy, and neither service touches the other's
 * files.
 */
export function copyFolder(play: Play, number: number): Play {
  const { world } = play;
  const home = path.join(world.disk.root, `copy-${number}`);
  cpSync(play.home, home, { recursive: true });
  world.disk.made(home);
  syncAll(world.disk, home);
  world.disk.syncedFolder(world.disk.root);
  world.note(`the folder is copied to ${home}`);
  const broker = play.broker.copy();
  const ledger = createLedger(world, broker, play.ledger.sent);
  const lakeDir = path.join(home, 'lake');
  const judge = createLakeJudge({ world, ledger, broker, lakeDir }, play.judge.losses());
  return {
    ...play,
    broker,
    ledger,
    judge,
    home,
    lakeDir,
    options: { ...play.options, lakeDir },
    compactors: new Set(),
    repairs: new Set(),
    downUntil: 0,
    stepBeforeStartMs: 0,
    violation: undefined,
    started: 0,
  };
}
