import { describe, expect, it } from 'vitest';
import { generateGameSessions, type GameSessionsOptions } from '../../../src/demo/game-sessions.ts';

const options: GameSessionsOptions = { seed: 7, events: 3000, until: 1_700_006_400, days: 5 };

describe('generated game sessions', () => {
  it('Generated game sessions are the same for the same seed, and others for another', () => {
    const events = [...generateGameSessions(options)];
    expect([...generateGameSessions(options)]).toEqual(events);
    expect([...generateGameSessions({ ...options, seed: 8 })]).not.toEqual(events);
  });

  it.each([1, 19, 3000])('Generated game sessions are exactly as many events as requested: %i', (events) => {
    expect([...generateGameSessions({ ...options, events })]).toHaveLength(events);
  });

  it('Generated game sessions keep within the API’s rules for a body of a web app', () => {
    for (const event of generateGameSessions(options)) {
      expect(event.lvid).toMatch(/^[0-9a-f]{32}$/);
      expect(event.ipv4.length).toBeLessThanOrEqual(15);
      expect(event.customEventName.length).toBeLessThanOrEqual(255);
      for (const [name, value] of Object.entries(event.customEventParams)) {
        expect(name).not.toBe('');
        expect(value).not.toBe('');
        expect(value.length).toBeLessThanOrEqual(255);
      }
    }
  });

  it('Generated game sessions spread over the days before the end, and players return', () => {
    const events = [...generateGameSessions(options)];
    const times = events.map((event) => event.eventTimestamp);
    expect(Math.max(...times)).toBeLessThan(options.until);
    expect(Math.min(...times)).toBeGreaterThanOrEqual(options.until - options.days * 86_400);
    expect(new Set(times.map((time) => Math.floor(time / 86_400))).size).toBe(options.days);
    const players = new Set(events.map((event) => event.customUserId));
    expect(players.size).toBeGreaterThan(5);
    const sessions = events.filter((event) => event.customEventName === 'session_start');
    expect(sessions.length).toBeGreaterThan(players.size);
    expect(new Set(events.map((event) => event.customEventName))).toEqual(
      new Set([
        'session_start',
        'tutorial_step',
        'level_start',
        'enemy_defeated',
        'level_complete',
        'level_fail',
        'shop_open',
        'purchase',
        'session_end',
      ]),
    );
  });

  it('Generated game sessions have one device for each player', () => {
    const devices = new Map<string, string>();
    for (const event of generateGameSessions(options)) {
      expect(devices.get(event.customUserId) ?? event.lvid).toBe(event.lvid);
      devices.set(event.customUserId, event.lvid);
    }
  });
});
