import { it } from 'vitest';
import { exportDay } from './year-exports.ts';
import { dayMs, daysOfYear } from './year-law.ts';
it('x', async () => {
  const firstDayMs = (Math.floor(Date.now() / dayMs) - 3 - daysOfYear + 1) * dayMs;
  const year = { seed: 1, events: 100e6, apps: 1000, firstDayMs };
  const all = Array.from({ length: 1000 }, (_, i) => i + 1);
  for (let round = 0; round < 4; round += 1)
    for (const event of ['newUsers', 'newDevices'] as const)
      for (const idApps of [[500], [3], all]) {
        const r = await exportDay({ folder: '/work/year/a-year', year, day: daysOfYear - 10, event, idApps });
        console.log(event, idApps.length, idApps[0], r.rows, (r.ms / 1000).toFixed(2), 'cpu', (r.cpuMs / 1000).toFixed(2), 'MB', (r.bytesRead / 1e6).toFixed(1));
      }
}, 600000);
