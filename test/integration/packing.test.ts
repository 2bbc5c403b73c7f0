import { execFile, execFileSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readInstalled, readLockFile } from '../helpers/lock-file.ts';

/**
 * `npm pack`, and what an installation of its file has; in the nightly run of a checkout that was never built, otherwise
 * of one with the program that the other tests run.
 */

const run = promisify(execFile);
const checkout = path.resolve(import.meta.dirname, '../..');
const lock = readLockFile(checkout);
const root = mkdtempSync(path.join(tmpdir(), 'tributary-test-'));
/** Time for packing and removing thousands of small files, ms. */
const slowMs = 600_000;
const copy = path.join(root, 'checkout');
/** Path of the program that `npm install --global --prefix` unpacks. */
const prefix = path.join(root, 'prefix');
const installed = path.join(prefix, 'lib/node_modules/tributary');

/** Lists the paths of the files below a folder, sorted. */
function listFiles(folder: string): string[] {
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => !entry.isDirectory());
  return entries.map((entry) => path.relative(folder, path.join(entry.parentPath, entry.name))).toSorted();
}

/**
 * The nightly run packs and installs every file of the packages. Other runs pack only their manifests: the program is
 * built already, and is not rebuilt.
 */
const isNightly = process.env['TRIBUTARY_TEST_INSTALL'] !== undefined;

/** Copies the packages that npm packs, since it follows no links, and links those that only the build needs. */
function copyPackages(): void {
  const modules = path.join(checkout, 'node_modules');
  const packed = [...lock]
    .filter(([place, { dev }]) => dev !== true && !place.startsWith('node_modules/@duckdb/'))
    .map(([place]) => place);
  for (const place of packed) {
    const [from, to] = [path.join(checkout, place), path.join(copy, place)];
    if (!isNightly && existsSync(from)) cpSync(path.join(from, 'package.json'), path.join(to, 'package.json'));
    const isOuter = place.lastIndexOf('node_modules/') === 0;
    if (isNightly && isOuter) cpSync(from, to, { recursive: true });
  }
  for (const name of readdirSync(modules)) {
    const target = path.join(copy, 'node_modules', name);
    if (!existsSync(target)) symlinkSync(path.join(modules, name), target);
  }
}

let tarball = '';

beforeAll(async () => {
  cpSync(checkout, copy, {
    recursive: true,
    filter: (from) =>
      !['node_modules', 'dist.next', '.git', 'data', 'test', ...(isNightly ? ['dist'] : [])].includes(
        path.relative(checkout, from),
      ),
  });
  if (!isNightly) utimesSync(path.join(copy, 'dist/main.js'), new Date(), new Date());
  mkdirSync(path.join(copy, 'data'));
  writeFileSync(path.join(copy, 'data/events.ndjson'), 'of the operator');
  copyPackages();
  // Older than the packages: make would fetch them again, into the checkout's folder.
  for (const name of ['package.json', 'package-lock.json']) utimesSync(path.join(copy, name), 0, 0);
  const { stdout } = await run('npm', ['pack', '--silent'], { cwd: copy });
  tarball = path.join(copy, stdout.trim());
  mkdirSync(path.dirname(installed), { recursive: true });
  execFileSync('tar', ['-xf', tarball, '-C', path.dirname(installed), '--transform', 's/^package/tributary/']);
}, slowMs);

afterAll(() => rmSync(root, { recursive: true, force: true }), slowMs);

describe('the packed program', () => {
  it('The packed program has only the files that it reads at run time, its licence and its documentation', () => {
    const wanted = [
      'package.json',
      'README.md',
      'LICENSE',
      'CHANGELOG.md',
      'dist/main.js',
      'dist/package.json',
      'dist/client/answers.d.mts',
      'dist/client/index.mjs',
      'dist/client/index.d.mts',
      'dist/export/worker/worker.js',
      ...listFiles(path.join(copy, 'dist/chunks'))
        .filter((file) => !file.endsWith('.map'))
        .map((file) => `dist/chunks/${file}`),
      ...listFiles(path.join(copy, 'dist/console')).map((file) => `dist/console/${file}`),
    ];
    for (const folder of ['schemas', 'pipelines', 'docs', 'clients'])
      if (existsSync(path.join(checkout, folder)))
        wanted.push(...listFiles(path.join(checkout, folder)).map((file) => `${folder}/${file}`));
    expect(wanted).toContain('dist/console/index.html');
    expect(listFiles(installed).filter((file) => !file.startsWith('node_modules/'))).toEqual(wanted.toSorted());
  });

  it('The packed program includes the packages of the lock file, in the same places and versions', () => {
    const wanted = [...lock]
      .filter(([place, { dev }]) => dev !== true && !place.startsWith('node_modules/@duckdb/'))
      .map(([place, { version }]) => [place, version] as const);
    expect(readInstalled(installed)).toEqual(new Map(wanted));
  });

  it('The packed program runs by its link, and loads only the packages of DuckDB', async () => {
    rmSync(path.join(installed, 'node_modules'), { recursive: true });
    mkdirSync(path.join(installed, 'node_modules'));
    symlinkSync(path.join(checkout, 'node_modules/@duckdb'), path.join(installed, 'node_modules/@duckdb'));
    mkdirSync(path.join(prefix, 'bin'));
    symlinkSync('../lib/node_modules/tributary/dist/main.js', path.join(prefix, 'bin/tributary'));
    // The help loads every command, which reads the program's files.
    const { stdout } = await run(process.execPath, [path.join(prefix, 'bin/tributary'), '--help']);
    expect(stdout).toMatch(/^Usage: tributary .*\n(.*\n)*\s+start\s/);
  });
});

describe('npm install --global of the packed program', () => {
  it("The command 'npm install --global' installs the versions of the lock file and a program that stores an event in its lake", async (context) => {
    if (!isNightly) context.skip("make nightly installs it with npm, which fetches DuckDB's packages");
    const there = path.join(root, 'npm');
    mkdirSync(there);
    await run('npm', ['install', '--global', '--prefix', there, tarball], { timeout: 300_000 });
    const versions = [...readInstalled(path.join(there, 'lib/node_modules/tributary'))];
    expect(versions.filter(([place, version]) => lock.get(place)?.version !== version)).toEqual([]);
    const missing = [...lock].filter(
      ([place, { dev, optional }]) => dev !== true && optional !== true && !versions.some(([found]) => found === place),
    );
    expect(missing.map(([place]) => place)).toEqual([]);
    const { stdout } = await run(path.join(there, 'bin/tributary'), ['demo'], { timeout: 300_000 });
    expect(stdout).toMatch(/stopped {3}everything/);
  }, 900_000);
});
