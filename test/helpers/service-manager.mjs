#!/usr/bin/env node
// Replaces systemctl on a machine of the tests: runs the lines of the unit files as the service manager would, without
// its users and its sandbox. Settings: TEST_UNITS (folder of the units), TEST_STATE (a folder for the state of running
// units), TEST_NGINX (command line of nginx).
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { setTimeout as pause } from 'node:timers/promises';

const { TEST_UNITS: units = '', TEST_STATE: state = '', TEST_NGINX: nginx = '' } = process.env;
const words = process.argv.slice(2);
const [verb, name = ''] = words.filter((word) => !word.startsWith('-'));
const pidFile = path.join(state, `${name}.pid`);
const alive = (pid) => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
};

function readUnit() {
  const text = readFileSync(path.join(units, `${name}.service`), 'utf8');
  const value = (key) => new RegExp(`^${key}=(.*)$`, 'm').exec(text)?.[1];
  const file = readFileSync(value('EnvironmentFile') ?? '', 'utf8');
  const settings = Object.fromEntries(
    file
      .split('\n')
      .filter((line) => /^\w+=/.test(line))
      .map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]),
  );
  return { value, environment: { PATH: process.env['PATH'], HOME: process.env['HOME'], ...settings } };
}

function start() {
  const { value, environment } = readUnit();
  const log = openSync(path.join(state, `${name}.log`), 'a');
  if (value('Type') === 'oneshot') {
    execFileSync('/bin/sh', ['-c', `exec ${value('ExecStart')}`], {
      cwd: '/',
      env: environment,
      stdio: ['ignore', log, log],
    });
    return;
  }
  // As sh reads it: no line of these units has a meaning that differs for the service manager.
  const child = spawn('/bin/sh', ['-c', `exec ${value('ExecStart')}`], {
    cwd: '/',
    env: environment,
    detached: true,
    stdio: ['ignore', log, log],
  });
  writeFileSync(pidFile, String(child.pid));
  const post = value('ExecStartPost');
  if (post !== undefined)
    execFileSync('/bin/sh', ['-c', post.replace(/^-/, '')], {
      env: { ...environment, MAINPID: String(child.pid) },
      stdio: ['ignore', log, log],
    });
  child.unref();
}

/** KillMode=mixed: SIGTERM for the main process alone. */
async function stop() {
  const { value } = readUnit();
  if (value('KillMode') !== 'mixed') throw new Error('only KillMode=mixed is known here');
  const pid = Number(readFileSync(pidFile, 'utf8'));
  process.kill(pid, 'SIGTERM');
  const deadline = Date.now() + Number(value('TimeoutStopSec')) * 1000;
  while (alive(pid)) {
    if (Date.now() > deadline) throw new Error(`${name} did not stop in time`);
    await pause(50);
  }
  rmSync(pidFile);
}

if (verb === 'daemon-reload') process.exit();
if (name.endsWith('.timer')) process.exit(existsSync(path.join(units, name)) ? 0 : 5);
// nginx -t leaves an empty file.
if (name === 'nginx')
  execFileSync(
    '/bin/sh',
    ['-c', existsSync(pidFile) && readFileSync(pidFile, 'utf8') !== '' ? `${nginx} -s reload` : nginx],
    { stdio: 'inherit' },
  );
else if (verb === 'start' || (verb === 'enable' && words.includes('--now'))) start();
else if (verb === 'stop' || (verb === 'disable' && words.includes('--now'))) await stop();
else throw new Error(`systemctl ${words.join(' ')} is not known here`);
process.exit();
