// The text a visitor finds on the page, and questions that share hardly a word with their answers.

export const questions = [
  "the shower is cold",
  "can I bring my dog?",
  "I eat no meat",
  "first aid",
  "how do I pay?",
];

export const text = `Arriving

The road ends at the lower car park. From there it is forty minutes on foot to the lodge, along the stream and through the larches. The cable lift beside the path carries luggage only; ring the bell and we will wind it up.

Rooms are ready from three in the afternoon. If you reach us earlier, leave your bags in the hall and sit on the terrace. Keys hang on the board by the stairs, each under the name of its booking.

The kitchen closes at eight. Guests who come off the mountain after that should telephone from the car park: we keep soup warm and leave the side door unlocked.

The rooms

Hot water comes from the wood boiler in the cellar, and it takes its time in the morning. Let the tap run for two minutes. If nothing warm arrives, the pressure has dropped: the gauge beside the cellar door must point into the green, and anyone of us will top it up.

Every bed has two blankets, and more lie in the chest on the landing. The windows stay open a hand's width at night, because the walls are thick and the stoves are dry. Heating is lit in October and not before.

Floors creak and sound carries. Between ten at night and six in the morning please walk in socks, and leave the packing of rucksacks with their many zips for daylight.

Food

Breakfast is from six for climbers and until nine for everyone else. There is porridge, bread from our own oven, cheese from the alp across the valley, and eggs while the hens agree.

Supper is one dish for all, at seven. Vegetarians and vegans are cooked for every day, without notice. Tell us by noon about allergies: nuts, gluten and milk we can leave out, traces we cannot rule out.

Packed lunches are ordered on the slate in the hall before you go to bed. Tea for your flask is free, and stands on the stove from five o'clock.

Animals

Well-mannered pets may stay in the two ground-floor rooms, on their own blanket and not on ours. On the alp keep them on a lead, for the sake of the cattle, and of yourself: cows with calves take a barking stranger for a wolf.

Marmots by the lower spring look tame. Bread makes them ill, and fat marmots sleep badly through the winter. Please admire them with empty hands.

On the mountain

Write your route and the hour you expect to return in the book by the door. If a name is not ticked off by dark, we start to search. Whoever forgets to tick it off pays for a round.

Storms build up after two in the afternoon between June and September. Be off the ridge by then. When your hair stands on end or metal hums, leave the crest at once, put poles aside and crouch on your rucksack.

The path to the glacier is marked in white and red as far as the moraine. Beyond it there is no path, the ice has holes under its snow, and nobody goes on without a rope, a companion, and somebody who has done it before.

Fog comes up the valley faster than you walk. Turn round at the last mark you can see, not at the first you cannot. Six whistles a minute call for help; three a minute are the answer.

When something goes wrong

Bandages, splints and a stretcher are in the red cupboard opposite the kitchen, which is never locked. Marta was a nurse for twenty years: wake her, whatever the hour. The rescue helicopter lands on the meadow behind the barn.

There is telephone reception at the bench above the chapel, and nowhere else. The emergency radio in the hall reaches the valley station day and night; lift the receiver, press the bar, and speak slowly.

If you smell smoke, ring the bell on the landing and go down the outside stairs. Meet by the fountain so that we can count you. Do not go back for anything that can be bought.

The house

The lodge was built in 1897 by a botanist who wished to see one meadow through all of its seasons. Her notebooks are in the reading room, under glass, and her names for the flowers are still used in the valley.

Electricity is made by the stream, a little in summer and almost none in winter. Telephones and lamps may be charged in the hall between four and six. Hair dryers put out the lights in the whole house.

The library takes any book you leave and gives any book you like. The chess set lacks a rook; a pine cone has stood in for it since 1962, and has won its share.

Leaving

Beds are stripped by ten, and blankets folded at their feet. What you carried up you carry down, rubbish above all: nothing on wheels comes here to collect it.

We take cash, and transfers made within the week. Cards we cannot read. Children under six pay nothing, those under fourteen half.

Lost things wait a year in the trunk under the stairs. We post them if they are worth the stamp, and have sent a single sock to Lisbon.`;
