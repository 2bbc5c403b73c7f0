import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, readdirSync, utimesSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { testFolder } from '../helpers/folder.ts';

const dist = path.resolve(import.meta.dirname, '../../dist');
const cacher = JSON.stringify(path.join(dist, 'code-cache.js'));

/** Runs code in a process of its own, which has the functions of the cache. */
const run = (code: string): string =>
  execFileSync(process.execPath, ['-e', `const cache = require(${cacher}); ${code}`], { encoding: 'utf8' });

describe('the code that V8 has compiled before', () => {
  let folder: string;
  let file: string;
  beforeEach(() => {
    folder = testFolder();
    file = path.join(folder, 'a.js');
    writeFileSync(
      file,
      "exports.say = () => require('./b.js').word + __filename;\nexports.fail = () => { throw new Error('x'); };\n",
    );
    writeFileSync(path.join(folder, 'b.js'), "exports.word = 'first ';\n");
  });

  const make = (): string => run(`cache.makeCodeCache(${JSON.stringify(folder)})`);
  const say = (): string => run(`cache.useCodeCache(); process.stdout.write(require(${JSON.stringify(file)}).say())`);

  it('Each module of a folder has its code beside it, and does by it what it does without', () => {
    const without = say();
    make();
    expect(readdirSync(folder).toSorted()).toEqual(['a.js', 'a.js.cache', 'b.js', 'b.js.cache']);
    expect(say()).toBe(without);
    expect(without).toBe(`first ${file}`);
  });

  it('A module that was changed after the build is compiled again, also at the same length', () => {
    make();
    writeFileSync(path.join(folder, 'b.js'), "exports.word = 'other ';\n");
    expect(say()).toBe(`other ${file}`);
  });

  it('A cache is used for the source whose hash it begins with, whatever times an unpacked package has', () => {
    make();
    const changed = path.join(folder, 'b.js');
    const code = "exports.word = 'other ';\n";
    writeFileSync(changed, code);
    const cache = readFileSync(`${changed}.cache`);
    createHash('sha256').update(code).digest().copy(cache);
    writeFileSync(`${changed}.cache`, cache);
    utimesSync(`${changed}.cache`, 0, 0);
    // V8 itself compares lengths alone: the old word shows that the module ran from its cache.
    expect(say()).toBe(`first ${file}`);
  });

  it.each(['', 'no code of V8'])("A cache that is damaged ('%s') is left out", (damage) => {
    make();
    for (const name of ['a', 'b']) writeFileSync(path.join(folder, `${name}.js.cache`), damage);
    expect(say()).toBe(`first ${file}`);
  });

  it('An error names the file and the line of a module that was loaded by its code', () => {
    make();
    const failing = `cache.useCodeCache(); try { require(${JSON.stringify(file)}).fail() } catch (error) { process.stdout.write(error.stack) }`;
    expect(run(failing)).toContain(`${file}:2:`);
  });

  it('V8 takes the code of every chunk of the program', () => {
    const chunks = path.join(dist, 'chunks');
    const files = readdirSync(chunks).filter((name) => name.endsWith('.js'));
    expect(files.filter((name) => !existsSync(path.join(chunks, `${name}.cache`)))).toEqual([]);
    const code = `const { Script } = require('node:vm'); const { readFileSync } = require('node:fs'); const { wrap } = require('node:module');
      const rejected = ${JSON.stringify(files)}.filter((name) => {
        const file = ${JSON.stringify(`${chunks}/`)} + name;
        return new Script(wrap(readFileSync(file, 'utf8')), { filename: file, cachedData: readFileSync(file + '.cache').subarray(32) }).cachedDataRejected;
      });
      process.stdout.write(JSON.stringify(rejected));`;
    expect(JSON.parse(run(code))).toEqual([]);
  });
});
