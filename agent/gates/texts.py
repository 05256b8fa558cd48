"""Texts whose log-probabilities are compared: each is given to the server whole, so nothing that it says itself can drift.

Our own words, about 100 to 200 each, alternating in kind so that the first few are already a mixture.
"""

from __future__ import annotations

TEXTS: tuple[str, ...] = (
    """\
The harbour master kept two clocks on the wall above his desk, and they had not agreed since the winter of the long
storm. One had been set by the radio, the other by the tide table that his predecessor had copied out by hand. When a
skipper asked him for the hour, he would look from one to the other, add something for the wind, and give an answer that
was believed in every port along the coast. It was said that no vessel leaving on his word had ever touched the bar.
Visitors from the ministry found the arrangement absurd. They brought a third clock, made of grey plastic, which
received its time from a satellite and was never wrong by more than a thousandth of a second. He thanked them, hung it
between the two others, and went on as before. In the evening, when the office was empty, he would take the new clock
down and wipe the salt from its face, because it was, after all, a guest.
""",
    '''\
from __future__ import annotations

import heapq
from collections.abc import Hashable, Mapping


def shortest_paths(graph: Mapping[Hashable, Mapping[Hashable, float]], start: Hashable) -> dict[Hashable, float]:
    """The length of the shortest path from `start` to each node that can be reached.

    Edge lengths must not be negative. Raises KeyError when `start` is not a node of the graph.
    """
    if start not in graph:
        raise KeyError(start)
    best: dict[Hashable, float] = {start: 0.0}
    waiting: list[tuple[float, int, Hashable]] = [(0.0, 0, start)]
    count = 1
    while waiting:
        length, _, node = heapq.heappop(waiting)
        if length > best[node]:
            continue
        for neighbour, step in graph[node].items():
            through = length + step
            if through < best.get(neighbour, float("inf")):
                best[neighbour] = through
                heapq.heappush(waiting, (through, count, neighbour))
                count += 1
    return best


if __name__ == "__main__":
    town = {"mill": {"bridge": 2.0}, "bridge": {"mill": 2.0, "market": 1.5}, "market": {"bridge": 1.5}}
    for place, distance in sorted(shortest_paths(town, "mill").items()):
        print(f"{place}: {distance:.1f} km")
''',
    """\
Problem. A tank holds 600 litres and is filled by two pipes. Alone, the first fills it in 4 hours and the second in 6
hours. A drain empties a full tank in 12 hours. The tank is empty, both pipes are opened at noon, and the drain, which
somebody forgot to close, is open as well. When is the tank full?

Solution. The first pipe delivers 600 / 4 = 150 litres an hour, the second 600 / 6 = 100 litres an hour. The drain takes
away 600 / 12 = 50 litres an hour. Together the level therefore rises by 150 + 100 - 50 = 200 litres an hour. The time
needed is 600 / 200 = 3 hours, so the tank is full at 15:00.

Check. In three hours the first pipe has delivered 450 litres and the second 300 litres, 750 in all; the drain has taken
150. What is left is 750 - 150 = 600 litres, as it should be.

Remark. With a drain twice as wide the level would rise by only 150 litres an hour, and filling would take 4 hours. With
a drain of 250 litres an hour it would never be full, however long one waits.
""",
    """\
Anna: You look as if you had not slept.
Ben: The pager rang at three. Latency on the search service had gone up to four seconds, and nobody had deployed anything.
Anna: So what was it?
Ben: At first I thought of the database, because it always is. But its graphs were flat. Then I saw that only one of the
twelve hosts was slow, and that it was answering a twelfth of the requests, which is exactly what you would expect.
Anna: And you took it out of the pool?
Ben: I wanted to know why first. It had been restarted by the update of the kernel, and after that its clock was wrong by
nine minutes, so every token that it checked looked expired and was fetched again.
Anna: A wrong clock! And the fix?
Ben: One line in a configuration file, and a new alert that compares the clocks. Then I went back to bed, at five.
Anna: Write it down before you forget it. I will bring coffee.
Ben: It is written down already. But coffee I would take.
""",
    """\
#!/usr/bin/env bash
# Keep the newest ten backups of each database and remove the others. Prints what it removes.
set -euo pipefail

folder="${1:?usage: prune.sh FOLDER [KEEP]}"
keep="${2:-10}"

if [[ ! -d "$folder" ]]; then
    echo "prune.sh: $folder is not a folder" >&2
    exit 2
fi

find "$folder" -maxdepth 1 -name '*.dump.gz' -printf '%f\\n' |
    sed -E 's/-[0-9]{8}T[0-9]{6}\\.dump\\.gz$//' |
    sort -u |
    while read -r database; do
        # The names sort by time because the date is written year first.
        find "$folder" -maxdepth 1 -name "$database-*.dump.gz" | sort -r | tail -n "+$((keep + 1))" |
            while read -r old; do
                size=$(du -h -- "$old" | cut -f1)
                echo "removing $old ($size)"
                rm -- "$old"
            done
    done

free=$(df -h --output=avail "$folder" | tail -n 1 | tr -d ' ')
echo "done; $free free on the volume of $folder"
""",
    """\
{
  "service": "thumbnailer",
  "version": "4.2.0",
  "regions": ["north", "south", "islands"],
  "limits": {"requests_per_minute": 1200, "burst": 60, "largest_upload_mb": 25},
  "formats": [
    {"name": "webp", "quality": 82, "sizes": [64, 128, 256, 512], "lossless": false},
    {"name": "jpeg", "quality": 90, "sizes": [128, 512, 1024], "lossless": false},
    {"name": "png", "quality": null, "sizes": [64, 256], "lossless": true}
  ],
  "storage": {
    "kind": "object-store",
    "bucket": "pictures-small",
    "retention_days": 90,
    "encryption": {"enabled": true, "key_rotation_days": 30}
  },
  "alerts": [
    {"metric": "error_rate", "above": 0.02, "for_minutes": 5, "notify": ["on-call"]},
    {"metric": "queue_length", "above": 400, "for_minutes": 10, "notify": ["on-call", "team"]},
    {"metric": "disk_used", "above": 0.85, "for_minutes": 60, "notify": ["team"]}
  ],
  "owners": [{"name": "M. Okafor", "since": "2023-11-01"}, {"name": "L. Brandt", "since": "2025-02-17"}],
  "notes": "Sizes are the longer edge in pixels. A picture that is smaller already is passed through unchanged."
}
""",
    """\
| station | line | opened | platforms | steps from the street | passengers a day | remarks |
|---|---|---|---|---|---|---|
| Old Market | red, blue | 1931 | 4 | 62 | 48,200 | oldest of the network; lift since 1998 |
| University | blue | 1957 | 2 | 41 | 31,750 | crowded from 8:00 to 9:30 and again from 16:00 |
| River Gate | red | 1931 | 2 | 55 | 12,400 | closed during high water in 2002 and 2013 |
| Stadium | green | 1971 | 3 | 24 | 6,900 | 55,000 on match days; third platform used only then |
| Hospital | green | 1974 | 2 | 0 | 17,300 | at street level, no steps at all |
| Airport | blue | 2004 | 2 | 30 | 22,850 | trains every twelve minutes, every twenty at night |
| Harbour | red | 1988 | 2 | 38 | 9,150 | ferry connection on the hour |
| North Hill | green | 1974 | 2 | 117 | 5,600 | deepest station; inclined lift replaced in 2016 |

Numbers are averages of working days in the year before last. Counting at the Airport was interrupted for three weeks, so
its figure is an estimate.
""",
    """\
Als der Müller am Morgen das Wehr öffnete, stand das Wasser höher als sonst, und auf der Oberfläche trieben Äpfel, ein
ganzer Schwarm roter Äpfel, die sich vor dem Rechen drehten und leise aneinanderstießen. Er rief seine Tochter, und sie
holten einen Korb nach dem anderen heraus, bis der Hof nach Herbst roch, obwohl erst Juli war. Niemand im Dorf wusste,
woher sie kamen. Oberhalb der Mühle gab es nur Wald, und im Wald, so sagten die Alten, nur Buchen und Steine. Am dritten
Tag ging die Tochter den Bach hinauf. Sie kam erst am Abend zurück, müde und zerkratzt, und erzählte von einer Lichtung
mit einem einzigen Baum, unter dem ein Tisch gedeckt war, als erwarte jemand Gäste. Sie habe sich nicht gesetzt, sagte
sie, aber sie habe einen Löffel mitgenommen, damit man ihr glaube. Der Müller drehte den Löffel lange in der Hand. Dann
legte er ihn in die Schublade zu den anderen, denn er sah genauso aus wie sie.
""",
    """\
2026-05-11 06:12:44.018 INFO  [main] starting ingest 2.9.1 with 16 workers, batch 512, queue limit 20000
2026-05-11 06:12:44.377 INFO  [main] connected to broker at broker-2:9092, topic measurements, group ingest-a
2026-05-11 06:12:45.102 INFO  [worker-03] assigned partitions 3, 19, 35
2026-05-11 06:12:45.104 INFO  [worker-07] assigned partitions 7, 23, 39
2026-05-11 06:13:02.560 WARN  [worker-07] record 88210443 has no unit, taking celsius
2026-05-11 06:13:02.561 WARN  [worker-07] record 88210444 has no unit, taking celsius
2026-05-11 06:14:45.000 INFO  [stats] 61440 records, 1024.0 records/s, queue 212, lag 3310, p99 write 41 ms
2026-05-11 06:16:45.000 INFO  [stats] 122880 records, 1024.0 records/s, queue 198, lag 1204, p99 write 39 ms
2026-05-11 06:17:20.733 ERROR [worker-11] write failed: connection reset by peer, retry 1 of 5 in 200 ms
2026-05-11 06:17:20.951 ERROR [worker-11] write failed: connection reset by peer, retry 2 of 5 in 400 ms
2026-05-11 06:17:21.367 INFO  [worker-11] write succeeded after 2 retries
2026-05-11 06:18:45.000 INFO  [stats] 184012 records, 1022.7 records/s, queue 871, lag 1490, p99 write 212 ms
2026-05-11 06:20:45.000 INFO  [stats] 245452 records, 1024.0 records/s, queue 203, lag 0, p99 write 40 ms
""",
    """\
Why does a large language model answer one request so much more slowly than it answers many together? Each new token
needs every weight of the model once. The weights lie in the memory of the accelerator and have to travel to its compute
units, and that journey takes the same time whether they are then used for one request or for fifty. With one request
the compute units multiply each weight by a single number and wait for the next; with fifty they have fifty
multiplications for each weight that arrives. Up to a certain number of requests, therefore, a larger batch is nearly
free. Beyond it, arithmetic becomes the bottleneck and every further request costs its share. A second memory grows with
the batch as well: the keys and values of all earlier tokens, which belong to one request only and are read by nobody
else. For short conversations they hardly count. For a hundred thousand tokens of context they can exceed the weights,
and then the batch stops being free much earlier.
""",
    """\
/* A ring buffer for one producer and one consumer. Size must be a power of two. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define SIZE 1024

struct ring {
    _Atomic size_t head; /* next slot to write, owned by the producer */
    _Atomic size_t tail; /* next slot to read, owned by the consumer */
    int slots[SIZE];
};

bool ring_push(struct ring *r, int value) {
    size_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
    size_t tail = atomic_load_explicit(&r->tail, memory_order_acquire);
    if (head - tail == SIZE)
        return false; /* full */
    r->slots[head & (SIZE - 1)] = value;
    atomic_store_explicit(&r->head, head + 1, memory_order_release);
    return true;
}

bool ring_pop(struct ring *r, int *value) {
    size_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
    size_t head = atomic_load_explicit(&r->head, memory_order_acquire);
    if (head == tail)
        return false; /* empty */
    *value = r->slots[tail & (SIZE - 1)];
    atomic_store_explicit(&r->tail, tail + 1, memory_order_release);
    return true;
}
""",
    """\
Le marché s'installe avant l'aube. Les premiers arrivés déchargent des caisses de poireaux encore couverts de terre, puis
les fromagers poussent leurs vitrines sur le pavé humide, et quand les cloches sonnent sept heures la place sent déjà le
pain, le thym et le café. Une vieille dame achète toujours la même chose : deux poires, une mûre et une dure, car elle
mange la première aujourd'hui et la seconde demain. Le marchand le sait, il les choisit sans demander, et depuis dix ans
il arrondit le prix vers le bas. Vers midi la lumière tombe droit sur les toiles, les voix baissent, on compte la monnaie
et on échange les invendus. Les pêcheurs repartent avec des salades, les maraîchers avec des sardines. À deux heures il
ne reste que des feuilles, un chat très attentif et l'homme au tuyau d'arrosage, qui rend la place aux joueurs de boules.
Ils discutent déjà pour savoir qui commencera, comme si la réponse n'était pas la même chaque semaine.
""",
    """\
Theorem. The square root of two is not a rational number.

Proof. Suppose it were. Then there would be whole numbers a and b, with b different from zero and without a common
divisor other than one, such that (a / b)^2 = 2, that is, a^2 = 2 b^2. The right-hand side is even, so a^2 is even. The
square of an odd number is odd, because (2k + 1)^2 = 4k^2 + 4k + 1 = 2 (2k^2 + 2k) + 1; hence a itself is even, and we
may write a = 2c. Putting this in gives 4 c^2 = 2 b^2, or b^2 = 2 c^2. By the same argument b is even as well. But then
two divides both a and b, which contradicts the choice of a and b. The assumption was wrong, and the theorem is proved.

Exercise. Show in the same way that the square root of three is not rational. Where does the argument fail for the
square root of four? Hint: the step from "four divides a^2" to "four divides a" is not allowed; take a = 6 and see.
""",
    """\
To: all residents of 14 Mill Lane
Subject: water off on Thursday, and what to do about the boiler

Dear neighbours,

On Thursday the plumbers will replace the main valve in the cellar. The water will be off from 8:30 until about 13:00.
Please fill a bucket or two in the morning, and do not start the washing machine or the dishwasher before we put a note
on the front door saying that all is well again.

When the water comes back it may be brown for a few minutes. That is rust from the old pipe and not dangerous. Let the
cold tap in the bathroom run first, with the sieve unscrewed, until it is clear.

If your boiler shows the code E4 afterwards, its pressure is too low. Open the small black tap under it by a quarter turn,
wait until the hand of the gauge stands between 1.2 and 1.5 bar, and close it again. Should that not help, call me at any
hour: 555 0142.

With kind regards, and my apologies for the noise,
Ines Halvorsen, ground floor left
""",
    """\
-- How many customers came back within thirty days of their first order, by month of that first order?
WITH first_orders AS (
    SELECT customer_id, MIN(ordered_at) AS first_at
    FROM orders
    WHERE status <> 'cancelled'
    GROUP BY customer_id
),
returning_customers AS (
    SELECT f.customer_id, f.first_at, MIN(o.ordered_at) AS second_at
    FROM first_orders AS f
    LEFT JOIN orders AS o
        ON o.customer_id = f.customer_id
        AND o.ordered_at > f.first_at
        AND o.ordered_at <= f.first_at + INTERVAL '30 days'
        AND o.status <> 'cancelled'
    GROUP BY f.customer_id, f.first_at
)
SELECT
    date_trunc('month', first_at) AS month,
    COUNT(*) AS customers,
    COUNT(second_at) AS came_back,
    ROUND(100.0 * COUNT(second_at) / COUNT(*), 1) AS percent
FROM returning_customers
GROUP BY month
HAVING COUNT(*) >= 20
ORDER BY month;
""",
    """\
Interviewer: You have repaired bridges for thirty years. Which one taught you the most?
Engineer: A very small one. It carried a farm road over a stream, and every spring it moved by a finger's width.
Interviewer: Towards the stream?
Engineer: That is what we all believed, and so my predecessors strengthened the side of the stream three times. I sat
there for two days and measured, and it moved away from the water, uphill.
Interviewer: Uphill? How can that be?
Engineer: The ground froze behind one abutment and not behind the other, because on one side the farmer kept his manure.
Warm on one side, ice on the other; the ice pushed.
Interviewer: And what did you do?
Engineer: I asked him to move the heap. He was offended for a year. The bridge has stood still ever since, and it is the
cheapest repair that I ever made. The report was half a page long.
Interviewer: What do you tell young colleagues, then?
Engineer: Measure in which direction a thing moves before you push against it.
""",
    """\
# Moving the archive to the new server

1. Announce the work two days ahead. Nobody loses data, but uploads are refused for about an hour.
2. On the old server, switch to read-only: `archivectl mode read-only`. Check with `archivectl status` that no upload is
   under way; one that is may take up to ten minutes to finish.
3. Copy what has changed since the last nightly run:
   - `rsync -a --delete --info=progress2 /srv/archive/ new:/srv/archive/`
   - repeat it; the second run must transfer nothing.
4. Compare the checksums. `archivectl verify --all` prints one line for each volume. Every line must end in `ok`.
5. Change the address in the name server. Its lifetime is 60 seconds.
6. Start the new server and watch its log for five minutes. Errors of the kind `stale handle` are expected once for each
   client and need no action.
7. Open uploads again: `archivectl mode normal`.

**Going back:** until step 7 it is enough to undo step 5. After step 7 new uploads exist only on the new server and must
be copied back first.
""",
    """\
Der Versuch wurde an zwölf Tagen wiederholt, jeweils um sechs Uhr morgens, bevor die Sonne die Halle erwärmte. Gemessen
wurde die Zeit, die eine Kugel von vierzig Gramm für eine geneigte Rinne von zwei Metern Länge braucht. Bei einer Neigung
von fünf Grad betrug sie im Mittel 2,63 Sekunden, bei zehn Grad 1,86 und bei zwanzig Grad 1,32 Sekunden. Die Streuung
zwischen den Tagen war mit 0,02 Sekunden kleiner als erwartet, die Streuung innerhalb eines Tages dagegen doppelt so
groß; vermutlich wurde die Kugel nicht immer ganz ohne Stoß losgelassen. Ein Vergleich mit der Rechnung zeigt, dass die
Kugel rollt und nicht gleitet: Ein gleitender Körper wäre etwa ein Sechstel schneller gewesen. Offen bleibt, weshalb die
Werte vom vierten Tag durchweg um drei Hundertstel höher liegen. An diesem Tag war die Rinne frisch gereinigt worden, und
es ist möglich, dass ein Rest des Reinigungsmittels die Oberfläche verändert hat. Wir haben ihn nicht ausgeschlossen.
""",
    """\
import csv
import statistics
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Reading:
    station: str
    hour: int
    celsius: float


def load(path: Path) -> list[Reading]:
    readings = []
    with path.open(newline="", encoding="utf-8") as file:
        for number, row in enumerate(csv.DictReader(file), start=2):
            try:
                readings.append(Reading(row["station"], int(row["hour"]), float(row["celsius"])))
            except (KeyError, ValueError) as error:
                print(f"{path}:{number}: skipped ({error})")
    return readings


def summary(readings: list[Reading]) -> dict[str, tuple[float, float]]:
    by_station: dict[str, list[float]] = {}
    for reading in readings:
        by_station.setdefault(reading.station, []).append(reading.celsius)
    return {name: (statistics.mean(v), statistics.pstdev(v)) for name, v in sorted(by_station.items())}


for name, (mean, spread) in summary(load(Path("readings.csv"))).items():
    print(f"{name:<20} {mean:6.2f} ± {spread:.2f} °C")
""",
    """\
The recipe is older than the house. Take a pound of flour, the coarse kind that still smells of the field, and make a
hollow in it as if you were going to build a well. Into the hollow goes water as warm as your wrist, a spoon of honey,
and as much yeast as a walnut. Wait until it breathes. Then add salt, but at the edge, never in the middle, and begin to
fold: from the far side towards you, press, turn by a quarter, and again, until the dough stops sticking to your hands
and starts sticking to itself. That takes as long as it takes to tell a story, not a short one. Let it rest under a cloth
until a finger pressed into it leaves a mark that fills slowly. Shape it, cut it once along its length, and put it into
the hottest oven that you have, with a cup of water thrown on the floor of it. It is done when it answers a knock with a
hollow sound. Do not cut it while it sings.
""",
    """\
Feature: withdrawing money

  Background:
    Given the account 4411 holds 120.00 in euros
    And its card is not blocked

  Scenario: enough money
    When the customer withdraws 50.00
    Then 50.00 are paid out
    And the account holds 70.00

  Scenario: not enough money
    When the customer withdraws 150.00
    Then nothing is paid out
    And the screen says "Your balance is 120.00"
    And the account holds 120.00

  Scenario Outline: amounts that the machine cannot pay
    When the customer withdraws <amount>
    Then nothing is paid out
    And the screen says "<message>"

    Examples:
      | amount  | message                              |
      | 7.00    | Only multiples of 10 can be paid     |
      | 0.00    | Please choose an amount              |
      | 5000.00 | At most 1000 can be paid at one time |

  Scenario: three wrong numbers
    Given the customer has typed a wrong number twice
    When the customer types a wrong number
    Then the card is kept
    And a letter is sent to the owner
""",
    """\
Question: A farmer has chickens and goats, 35 heads and 94 legs in all. How many of each are there?
Answer: If all 35 were chickens there would be 70 legs. There are 94, which is 24 more. Each goat instead of a chicken adds
two legs, so there are 12 goats and 23 chickens. Check: 12 * 4 + 23 * 2 = 48 + 46 = 94.

Question: Water flows into a pond whose lilies double their area every day. On day 30 they cover all of it. When did they
cover a quarter?
Answer: Half was covered one day before, on day 29, and a quarter on day 28.

Question: A bat and a ball cost 1.10 together, and the bat costs 1.00 more than the ball. What does the ball cost?
Answer: Call it x. Then x + (x + 1.00) = 1.10, so 2x = 0.10 and x = 0.05. The ball costs five cents and the bat 1.05.

Question: Three machines make three parts in three minutes. How long do a hundred machines need for a hundred parts?
Answer: One machine makes one part in three minutes, so a hundred machines make a hundred in the same three minutes.
""",
    """\
Il faut distinguer deux sortes de retard. Le premier se voit : le train n'est pas à quai, l'horloge avance, les voyageurs
lèvent la tête. Le second est caché dans l'horaire même. Entre deux villes que l'on pourrait relier en cinquante minutes,
la compagnie en annonce soixante-deux, et le train, s'il perd dix minutes en route, arrive encore à l'heure. Ces minutes
de réserve ne sont pas perdues pour tout le monde : elles protègent les correspondances, elles évitent qu'un incident se
propage d'une ligne à l'autre. Mais elles ont un prix, et il est payé chaque jour par tous, même quand rien n'arrive.
Combien en faut-il ? La réponse dépend de la forme des retards plus que de leur moyenne. S'ils sont petits et fréquents,
une courte réserve suffit. S'ils sont rares et très longs, aucune réserve raisonnable ne les absorbe, et mieux vaut
prévoir un train de secours. On mesure donc d'abord, pendant une saison entière, et l'on décide ensuite.
""",
    """\
Meeting notes, 4 June

Present: Dalia, Tomas, Ruth, Chen (from 10:20). Absent: Pavel (on leave until the 12th).

Decided
- The release goes out on Monday and not on Friday. Two of the five open defects touch payments; Ruth does not want them
  to meet a weekend.
- Old reports stay readable for one more year. Tomas writes the notice to customers by Thursday.

Open
- Who pays for the second load test? It was ordered by us but used by the other team. Dalia asks their lead.
- The search index grew from 40 to 95 GB in three weeks. Chen suspects the new attachment field. He turns it off for one
  customer and measures; result next week.

Numbers
- Sign-ups: 1,204 (last month 1,150). Cancelled: 87 (last month 61), half of them with the reason "too slow".
- Mean response time of the start page: 640 ms, target 500 ms. The slowest tenth takes more than 1.9 s.

Next meeting: 11 June, 10:00, room 3. Ruth brings the list of defects, sorted by what they cost.
""",
)
