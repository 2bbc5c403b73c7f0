import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { readLockFile, resolveLocked } from '../helpers/lock-file.ts';

/** Packages of an installation: exact versions with checksums, for every supported version of Node. */

const checkout = path.resolve(import.meta.dirname, '../..');
const packages = readLockFile(checkout);
const manifest = JSON.parse(readFileSync(path.join(checkout, 'package.json'), 'utf8')) as {
  readonly engines: { readonly node: string };
  readonly dependencies: Readonly<Record<string, string>>;
  readonly devDependencies: Readonly<Record<string, string>>;
  readonly bundleDependencies?: readonly string[];
};

/** npm's parser of versions and ranges; fastify needs it too. */
const require = createRequire(createRequire(import.meta.url).resolve('fastify'));
const { satisfies, minVersion } = require('semver') as {
  satisfies: (version: string, range: string) => boolean;
  minVersion: (range: string) => { version: string } | null;
};

const exact = /^\d+\.\d+\.\d+(-[\w.]+)?$/;

/** The oldest release of each Node on which the program and its tests are run. */
const nodes = ['20.19.0', '22.13.0', '24.0.0'];

describe('the lock file', () => {
  it('The lock file has a checksum and an address on the public registry for each package of each platform', () => {
    const incomplete = [...packages].filter(
      ([, { resolved, integrity }]) =>
        !(resolved ?? '').startsWith('https://registry.npmjs.org/') || !(integrity ?? '').startsWith('sha512-'),
    );
    expect(packages.size).toBeGreaterThan(100);
    expect(incomplete.map(([place]) => place)).toEqual([]);
  });

  it('The lock file has no package that does not support a Node which the program supports', () => {
    expect(minVersion(manifest.engines.node)?.version).toBe(nodes[0]);
    const refusals = [...packages].flatMap(([place, { version, engines }]) =>
      nodes
        .filter((node) => !satisfies(node, engines?.node ?? '*'))
        .map((node) => `${place}@${version} on Node ${node}`),
    );
    expect(refusals).toEqual([]);
  });

  it('The lock file has for each package a version in the ranges of its dependants, so that no installation without it differs', () => {
    const unmet = [...packages].flatMap(([place, { dependencies = {}, optionalDependencies = {} }]) =>
      Object.entries({ ...dependencies, ...optionalDependencies })
        .filter(([name, range]) => !satisfies(resolveLocked(packages, place, name)?.version ?? 'none', range))
        .map(([name, range]) => `${place} wants ${name} ${range}`),
    );
    expect(unmet).toEqual([]);
  });
});

describe('the packed program', () => {
  const bundled = manifest.bundleDependencies ?? [];

  it('The packed program depends on exact versions, and the lock file has them', () => {
    for (const [name, version] of Object.entries({ ...manifest.dependencies, ...manifest.devDependencies })) {
      expect(version, name).toMatch(exact);
      expect(packages.get(`node_modules/${name}`)?.version, name).toBe(version);
    }
  });

  it('The packed program contains every package but those of a platform, which it depends on by exact version', () => {
    const asked: string[] = [];
    const ranges: string[] = [];
    const ask = (from: string, needs: Readonly<Record<string, string>>): void => {
      for (const [name, range] of Object.entries(needs)) {
        if (bundled.includes(name)) continue;
        asked.push(name);
        if (!exact.test(range)) ranges.push(`${from} wants ${name} ${range}`);
        const { dependencies = {}, optionalDependencies = {} } = packages.get(`node_modules/${name}`) ?? {};
        ask(name, { ...dependencies, ...optionalDependencies });
      }
    };
    ask('tributary', manifest.dependencies);
    expect(ranges).toEqual([]);
    // DuckDB has one package per platform: npm fetches the matching one.
    expect(asked.filter((name) => !name.startsWith('@duckdb/'))).toEqual([]);
  });
});
